"""The archive's part of the contract: its configuration, its key, what its playbook is asked for (X1, X2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import render_kit
from contract_kit import lab, spelling
from sideband import archive
from sideband.check import check_site
from sideband.contract import compile_site

from services.archiver.config import parse
from services.archiver.experiment import ID

MODEL = compile_site(*lab())
IDENTITY = {"ca": "ca", "certificate": "certificate", "key": "key"}
SETTINGS = {
    "sideband_archive_bucket": "experiments",
    "sideband_archive_endpoint": "http://127.0.0.1:7480",
    "sideband_archive_repositories": [{"tenant": "alpha", "url": "file:///srv/git/alpha.git"}],
}


def brought(directory: Path, **more: Any) -> dict[str, Any]:
    (directory / "s3.key").write_text("access:secret\n")
    given = {**SETTINGS, "sideband_archive_secret_file": str(directory / "s3.key"), **more}
    found = render_kit.fragment("archive", MODEL, "lake1", IDENTITY, directory, **given)
    return {item["path"]: item for item in (*found["fragment"]["files"], *found["secrets"])}


def test_the_program_reads_what_the_role_writes(tmp_path: Path) -> None:
    files = brought(tmp_path, sideband_archive_peak_teraflops={"Our GPU": 100, "NVIDIA H200": 900})
    config = parse(json.loads(files["/etc/sideband/archive/archiver.json"]["content"]))
    assert config.gateways == ("https://10.30.0.51:8444",)
    assert [tier.name for tier in config.tiers] == ["minute"]
    assert config.remote.bucket == "experiments"
    assert config.repositories[0].url == "file:///srv/git/alpha.git"
    assert (config.peak_flops["Our GPU"], config.peak_flops["NVIDIA H200"]) == (1e14, 9e14)
    assert config.peak_flops["NVIDIA H100 80GB HBM3"] == 989e12


def test_keys_are_for_the_archives_own_user_alone(tmp_path: Path) -> None:
    (tmp_path / "git.key").write_text("-----BEGIN-----\n")
    files = brought(tmp_path, sideband_archive_git_key_file=str(tmp_path / "git.key"))
    modes = {path: (item["mode"], item.get("group", "root")) for path, item in files.items()}
    assert modes["/etc/sideband/archive/s3.ini"] == ("0640", "sideband-archive")
    assert modes["/etc/sideband/archive/host.key"] == ("0640", "sideband-archive")
    assert modes["/etc/sideband/archive/git.key"] == ("0400", "sideband-archive")
    ini = files["/etc/sideband/archive/s3.ini"]["content"]
    assert ini == "[default]\naws_access_key_id = access\naws_secret_access_key = secret\n"
    # What is no secret holds none.
    seen = [item for item in files.values() if item["mode"] in ("0644", "0755") and "content" in item]
    assert len(seen) >= 5
    assert not any("secret_access" in item["content"] or "= secret" in item["content"] for item in seen)
    assert "/etc/sideband/archive/git.key" not in brought(tmp_path)


def test_a_vaulted_variable_may_hold_the_key(tmp_path: Path) -> None:
    files = brought(
        tmp_path, sideband_archive_secret_file="", sideband_archive_secret_variable="vault_s3", vault_s3="a:b"
    )  # fmt: skip
    assert "aws_secret_access_key = b\n" in files["/etc/sideband/archive/s3.ini"]["content"]


@pytest.mark.parametrize("secret", ["", "access", "access:", ":secret", "a b:c", "a:b\nc:d"])
def test_what_is_no_key_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ValueError, match="one line, ACCESS_KEY:SECRET_KEY") as said:
        archive.credentials(secret)
    assert "secret" not in str(said.value).replace("the secret of the storage", "")


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        ({"experiment": "run-42"}, []),
        ({"experiment": "run-42", "again": "true"}, []),
        ({}, ["experiment: is missing; hint: the code's tag, -e experiment=ID"]),
        ({"experiment": ""}, ["experiment: is missing; hint: the code's tag, -e experiment=ID"]),
        (
            {"experiment": "a/../b"},
            [
                "experiment: no name of a tag (got 'a/../b'); "
                "hint: letters, digits, '.', '_' and '-', at most 64"
            ],
        ),
        (
            {"experiment": 42, "again": "maybe"},
            ["again: must be true or false (got 'maybe'); hint: leave it out"],
        ),
    ],
)
def test_a_request_says_all_that_is_wrong_with_it(given: dict[str, Any], errors: list[str]) -> None:
    assert archive.request_errors(given, ["lake1"]) == errors


def test_a_site_without_an_archive_says_so() -> None:
    (error,) = archive.request_errors({"experiment": "x"}, [])
    assert error == "groups.sideband_archive: has no host; hint: put one into it and run site.yml"


def test_playbook_and_program_call_an_experiment_alike() -> None:
    assert archive.EXPERIMENT.pattern == ID.pattern


def test_an_archive_that_reaches_no_gateway_or_no_tier_is_refused() -> None:
    hosts = {"lake1": {**MODEL["hosts"]["lake1"], "reaches": {}}}
    with pytest.raises(ValueError, match=r"sideband_flows\[export\]: the archive reaches no gateway"):
        archive.compile_archiver({**MODEL, "hosts": hosts}, "lake1", {})
    with pytest.raises(ValueError, match="needs an aggregated tier"):
        archive.compile_archiver({**MODEL, "tiers": {"hot": {}}}, "lake1", {})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        (
            {"sideband_archive_bucket": ""},
            ["all: sideband_archive_bucket: is missing; the S3 bucket that keeps the files"],
        ),
        (
            {"sideband_archive_endpoint": "s3.example.org"},
            [
                "all: sideband_archive_endpoint: must be an http or https URL (got 's3.example.org'); "
                "for example https://s3.example.org"
            ],
        ),
        (
            {"sideband_archive_secret_variable": "vault_s3"},
            [
                "all: sideband_archive_secret_file: is one too many; the storage's key, ACCESS:SECRET: "
                "sideband_archive_secret_variable names a vaulted variable, or a file"
            ],
        ),
        (
            {
                "sideband_archive_repositories": [
                    {"tenant": "alpah", "url": "a"},
                    {"tenant": "beta", "url": "a"},
                ]
            },
            [
                "all: sideband_archive_repositories[0].tenant: is no tenant (got 'alpah'); "
                "did you mean 'alpha'?",
                "all: sideband_archive_repositories[1].url: is there twice (got 'a'); whose experiments "
                "are in it must be plain; give each tenant its own",
            ],
        ),
    ],
)
def test_a_contract_with_an_archive_says_what_it_lacks(changes: dict[str, Any], said: list[str]) -> None:
    hostvars, groups = lab()
    settings = {**SETTINGS, "sideband_archive_secret_file": "/x", **changes}
    for variables in hostvars.values():
        variables.update(settings)
    known = ("sideband_mirror_url", *settings)
    assert [str(error) for error in check_site(hostvars, groups, known, spelling, served=True)] == said
