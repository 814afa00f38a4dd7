"""Credentials of s3:// from the files of the AWS tools."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("obstore")
pytest.importorskip("boto3")

from tarkit.errors import TarkitError, Usage
from tarkit.stores import aws, buckets, connect
from tarkit.stores.store import StoreOptions
from tests._tools import each_row
from tests.stores._http import HttpServer
from tests.stores._servers import moto

PLAIN = StoreOptions(retries=0, timeout=5)


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch, here: Path) -> Path:
    """The directory of the two files, `config` and `credentials`."""
    for name in [*os.environ]:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(here / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(here / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    buckets._open.cache_clear()
    return here


def keys() -> dict[str, object] | None:
    provider = aws.credential_provider(PLAIN)
    if provider is None:
        return None
    found = provider()
    return {name: found[name] for name in ("access_key_id", "secret_access_key", "token")}


def test_profiles(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys come from the files, unless variables are set."""
    (files / "credentials").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b%c\n[two]\naws_access_key_id=z\n"
    )
    (files / "config").write_text("[default]\nregion = eu-west-1\n[profile two]\nendpoint_url = http://localhost\n")
    assert keys() == {"access_key_id": "a", "secret_access_key": "b%c", "token": None}
    assert aws.profile_of(PLAIN)["region"] == "eu-west-1"
    monkeypatch.setenv("AWS_PROFILE", "two")
    assert buckets.endpoint_of("s3", PLAIN) == "http://localhost"
    with pytest.raises(Usage, match="profile two: aws_access_key_id and aws_secret_access_key go together"):
        keys()
    monkeypatch.setenv("AWS_PROFILE", "three")
    with pytest.raises(Usage, match="no profile three"):
        keys()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    assert aws.profile_of(PLAIN) == {}
    assert keys() is None
    assert aws.profile_of(StoreOptions(anonymous=True)) == {}


def test_keys_that_another_program_renews(files: Path, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read again before they are too old, in one run."""
    monkeypatch.setattr(aws, "_VALID", timedelta(seconds=-1))
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    server.serve("/b/a.tar", b"x", headers={"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"})
    for number in range(3):
        text = f"[default]\naws_access_key_id=id{number}\naws_secret_access_key=s\naws_session_token=t{number}\n"
        (files / "credentials").write_text(text)
        connect.head_object("s3://b/a.tar", PLAIN)
        sent = server.log[-1][2]
        assert f"Credential=id{number}/" in sent["authorization"]
        assert sent["x-amz-security-token"] == f"t{number}"


def test_a_command_that_gives_keys(files: Path) -> None:
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    given = {"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "SessionToken": "c", "Expiration": until}
    (files / "keys.json").write_text(json.dumps(given))
    (files / "config").write_text(f"[default]\ncredential_process = cat {files / 'keys.json'}\n")
    assert keys() == {"access_key_id": "a", "secret_access_key": "b", "token": "c"}
    (files / "config").write_text("[default]\ncredential_process = false\n")
    with pytest.raises(TarkitError, match=r"^the AWS profile default has its keys from the command of cred"):
        keys()


@each_row("variable", ["AWS_REGION", "AWS_DEFAULT_REGION", ""])
def test_keys_of_a_role(variable: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 asks the service for them, in the region of the profile or of either variable."""
    region = "" if variable else "region = us-east-1\n"
    role = "role_arn = arn:aws:iam::123456789012:role/x\nsource_profile = q\n"
    (files / "config").write_text(
        f"[profile p]\n{role}{region}[profile q]\naws_access_key_id=q\naws_secret_access_key=q\n"
    )
    with moto() as endpoint, monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_PROFILE", "p")
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            patch.delenv(name, raising=False)
        if variable:
            patch.setenv(variable, "us-east-1")
        buckets._open.cache_clear()
        given = keys() or {}
    assert given["access_key_id"] != "q"
    assert given["token"]


SOURCES = {
    "credential_process = cat x": "the command of credential_process",
    "sso_session = me": "SSO",
    "sso_start_url = https://x": "SSO",
    "role_arn = arn:aws:iam::1:role/x\nsource_profile = default": "a role",
}


@each_row("setting", sorted(SOURCES))
def test_what_takes_boto3(setting: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the message says so."""
    (files / "config").write_text(f"[default]\naws_access_key_id=a\naws_secret_access_key=b\n[profile p]\n{setting}\n")
    with monkeypatch.context() as patch:
        patch.setenv("AWS_PROFILE", "p")
        patch.setitem(sys.modules, "boto3", None)
        buckets._open.cache_clear()
        with pytest.raises(TarkitError) as raised:
            connect.head_object("s3://b/a.tar", PLAIN)
    assert str(raised.value) == f"the AWS profile p has its keys from {SOURCES[setting]}, which takes boto3"
    assert "pip install boto3" in (raised.value.hint or "")


def test_keys_that_cannot_be_renewed(files: Path, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, at once, although the library asks for them."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    (files / "config").write_text("[default]\nregion = us-east-1\ncredential_process = false\n")
    with pytest.raises(TarkitError, match=r"^s3://b/a\.tar: the AWS profile default has its keys from") as raised:
        connect.head_object("s3://b/a.tar", PLAIN)
    assert "\n" not in str(raised.value)
