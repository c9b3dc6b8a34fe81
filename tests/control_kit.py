"""What the tests of the control way share: real keys, a real TLS rack, a stand-in for HAProxy's socket."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from sideband.documents import Document, Scope, Signed, timestamp

from services.level.issue import sign

# -- signing keys -----------------------------------------------------------------------------------------


@dataclass
class Signer:
    """A directory with an ssh key and the list of keys that the receivers trust."""

    directory: Path
    key: Path = field(init=False)
    allowed: Path = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.directory / "signing_key"
        self.allowed = self.directory / "allowed_signers"
        make_key(self.key)
        public = self.key.with_suffix(".pub").read_text()
        self.allowed.write_text(f'sideband-policy namespaces="sideband-policy" {public}')

    def sign(self, document: Document) -> Signed:
        return Signed(document, sign(document.text(), str(self.key)))

    def document(self, level: str = "core", generation: int = 1000, **changes: Any) -> Signed:
        return self.sign(document(level, generation, **changes))


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)], check=True)


def document(level: str = "core", generation: int = 1000, **changes: Any) -> Document:
    given: dict[str, Any] = {"site": "lab", "scope": Scope("all"), "issued": timestamp(1_700_000_000)}
    return Document(level=level, generation=generation, **{**given, **changes})


def bundle(*pairs: tuple[str, str]) -> bytes:
    """A bundle of any texts, sound or not."""
    return json.dumps({"documents": [{"document": text, "signature": sig} for text, sig in pairs]}).encode()


def bundle_of(*signed: Signed) -> bytes:
    return bundle(*((one.document.text(), one.signature) for one in signed))


# -- certificates -----------------------------------------------------------------------------------------


class Authority:
    """A CA that writes certificates for 127.0.0.1 or a node."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.path = directory / f"{name}.crt"
        self.path.write_bytes(
            certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    def issue(self, name: str, address: str = "127.0.0.1") -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            self._builder(subject, key)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False
            )
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        crt, pem = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        crt.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pem.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return crt, pem


# -- a rack -----------------------------------------------------------------------------------------------


@dataclass
class FakeRack:
    """What a rack answers, and what it was asked. `policy` is (status, body, etag)."""

    url: str = ""
    policy: tuple[int, bytes, str | None] = (200, b'{"documents":[]}', '"none"')
    push_status: int = 204
    fetched: list[str | None] = field(default_factory=list)
    pushed: list[str] = field(default_factory=list)
    peers: list[str] = field(default_factory=list)
    connections: int = 0

    def serve(self, *signed: Signed, etag: str = '"one"') -> None:
        self.policy = (200, bundle_of(*signed), etag)


@contextlib.contextmanager
def fake_rack(authority: Authority, name: str = "rack", address: str = "127.0.0.1") -> Iterator[FakeRack]:
    rack = FakeRack()
    certificate, key = authority.issue(name, address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority.path)
    context.verify_mode = ssl.CERT_REQUIRED

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            rack.connections += 1
            peer = self.connection.getpeercert()  # type: ignore[attr-defined]
            rack.peers.append(peer["subject"][-1][0][1])

        def log_message(self, *arguments: Any) -> None:
            return

        def _answer(self, status: int, body: bytes, etag: str | None) -> None:
            self.send_response(status)
            if etag:
                self.send_header("ETag", etag)
            if status != 304:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if status != 304:
                self.wfile.write(body)

        def do_GET(self) -> None:
            assert self.path == "/policy"
            known = self.headers.get("If-None-Match")
            rack.fetched.append(known)
            status, body, etag = rack.policy
            if status == 200 and known and known == etag:
                status, body = 304, b""
            self._answer(status, body, etag)

        def do_POST(self) -> None:
            assert self.path == "/api/v1/import/prometheus"
            rack.pushed.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._answer(rack.push_status, b"", None)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            return

        def get_request(self) -> tuple[Any, Any]:
            connection, peer = super().get_request()
            return context.wrap_socket(connection, server_side=True), peer

    server = Server(("127.0.0.1", 0), Handler)
    rack.url = f"https://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield rack
    finally:
        server.shutdown()
        server.server_close()


# -- HAProxy's runtime socket -----------------------------------------------------------------------------


class FakeRuntime:
    """The map commands of HAProxy's socket, with its versions and its limit of one buffer a command."""

    def __init__(self, path: Path) -> None:
        self.maps: dict[str, dict[str, str]] = {}
        self.prepared: dict[str, tuple[str, dict[str, str]]] = {}
        self.commands: list[str] = []
        self.deaf = False
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                command = b""
                while not command.endswith(b"\n"):
                    piece = self.request.recv(65536)
                    if not piece:
                        return
                    command += piece
                answer = (
                    "Command too long"
                    if len(command) > 16384 - 1024
                    else outer.answer(command.decode().strip())
                )
                with contextlib.suppress(OSError):
                    self.request.sendall(answer.encode() + b"\n")

        self._server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, command: str) -> str:
        self.commands.append(command[:200])
        words = command.split(" ")
        if self.deaf:
            return "Permission denied"
        if words[:2] == ["prepare", "map"]:
            version = str(len(self.prepared) + 1)
            self.prepared[version] = (words[2], {})
            return f"New version created: {version}"
        if words[:2] == ["add", "map"]:
            name, entries = self.prepared[words[2][1:]]
            assert name == words[3]
            entries[words[4]] = words[5]
            return ""
        if words[:2] == ["commit", "map"]:
            name, entries = self.prepared[words[2][1:]]
            self.maps[name] = entries
            return ""
        if words[:2] == ["show", "map"]:
            held = self.maps.get(words[2], {})
            return "".join(
                f"0x{number:x} {key} {value}\n" for number, (key, value) in enumerate(held.items())
            )
        return "Unknown command"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def silent_port() -> tuple[socket.socket, int]:
    """A listener that accepts and never says a word."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, listener.getsockname()[1]


Clock = Callable[[], float]
