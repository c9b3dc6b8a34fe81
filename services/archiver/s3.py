"""S3-compatible storage, asked directly: what DVC has sent is read back and hashed before it is relied on."""

from __future__ import annotations

import configparser
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.archiver.config import Remote
from services.archiver.problem import Problem

_BLOCK = 4 << 20


@dataclass(frozen=True)
class Object:
    """A file as DVC names it: by its MD5, which is its place in cache and remote too."""

    md5: str
    size: int

    @property
    def path(self) -> str:
        return f"files/md5/{self.md5[:2]}/{self.md5[2:]}"


class Damaged(Exception):
    """The remote holds something else under this hash."""


class Missing(Exception):
    """The remote holds nothing under this hash."""


class Storage:
    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._made: Any = None

    @property
    def url(self) -> str:
        return f"s3://{self._remote.bucket}/{self._remote.prefix}".rstrip("/")

    def key(self, found: Object) -> str:
        return f"{self._remote.prefix}/{found.path}".lstrip("/")

    def verify(self, found: Object) -> None:
        """Reads the whole object back. Raises Damaged or Missing."""
        digest, size = hashlib.md5(usedforsecurity=False), 0
        for block in self._blocks(found):
            digest.update(block)
            size += len(block)
        if size != found.size or digest.hexdigest() != found.md5:
            raise Damaged(f"{self.url}/{found.path}: {size} bytes of MD5 {digest.hexdigest()}")

    def there(self, found: Object) -> bool:
        """Whether it is there at its size; quick, for what has been verified before."""
        try:
            size = self._ask("head_object", Key=self.key(found))["ContentLength"]
        except Missing:
            return False
        return bool(size == found.size)

    def fetch(self, found: Object, target: Path) -> None:
        """Into a file that is whole and right, or not there."""
        target.parent.mkdir(parents=True, exist_ok=True)
        candidate = target.with_name(f".{target.name}.{os.getpid()}.new")
        digest = hashlib.md5(usedforsecurity=False)
        try:
            with open(candidate, "wb") as file:
                for block in self._blocks(found):
                    digest.update(block)
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
            if digest.hexdigest() != found.md5:
                raise Damaged(f"{self.url}/{found.path}: MD5 {digest.hexdigest()}")
            os.replace(candidate, target)
        finally:
            candidate.unlink(missing_ok=True)

    def remove(self, found: Object) -> None:
        self._ask("delete_object", Key=self.key(found))

    def _blocks(self, found: Object) -> Iterator[bytes]:
        from botocore.exceptions import BotoCoreError, HTTPClientError

        body = self._ask("get_object", Key=self.key(found))["Body"]
        try:
            while block := body.read(_BLOCK):
                yield block
        except (BotoCoreError, HTTPClientError, OSError) as error:
            raise self._problem(error) from None

    def _ask(self, operation: str, **values: str) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

        try:
            answer = getattr(self._client(), operation)(Bucket=self._remote.bucket, **values)
        except ClientError as error:
            if str(error.response.get("Error", {}).get("Code")) in ("404", "NoSuchKey"):
                raise Missing(values.get("Key", "")) from None
            raise self._problem(error) from None
        except (BotoCoreError, HTTPClientError, OSError) as error:
            raise self._problem(error) from None
        return dict(answer)

    def _problem(self, error: Exception) -> Problem:
        said = " ".join(str(error).split())[:300]
        return Problem(
            f"{self.url}: {said}", "does the storage answer at this endpoint, with these keys?", True
        )

    def _client(self) -> Any:
        if self._made is None:
            # Slow to import, and nothing before this needs it.
            import botocore.session
            from botocore.config import Config

            access, secret = credentials(self._remote.credentials)
            # Of the caller's own settings nothing counts: no profile, no other file.
            session = botocore.session.Session(profile=None)
            session.set_config_variable("config_file", os.devnull)
            session.set_config_variable("credentials_file", os.devnull)
            self._made = session.create_client(
                "s3",
                endpoint_url=self._remote.endpoint,
                region_name=self._remote.region,
                aws_access_key_id=access,
                aws_secret_access_key=secret,
                verify=self._remote.ca or None,
                config=Config(
                    s3={"addressing_style": "path"},
                    retries={"total_max_attempts": 4, "mode": "standard"},
                    connect_timeout=10,
                    read_timeout=60,
                ),
            )
        return self._made


def credentials(path: str) -> tuple[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
        return parser["default"]["aws_access_key_id"], parser["default"]["aws_secret_access_key"]
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}", "playbooks/archive.yml brings it") from None
    except (KeyError, configparser.Error):
        raise Problem(
            f"{path}: no profile `default` with two keys", "playbooks/archive.yml brings it"
        ) from None
