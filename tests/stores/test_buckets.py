"""What is special about s3://, gs:// and az://; what all stores do alike is in `test_contract`."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("obstore")

import tarkit
from tarkit.errors import TarkitError, Usage
from tarkit.stores import aws, buckets, connect
from tarkit.stores.store import StoreOptions
from tests._tools import each_row
from tests.conftest import tar
from tests.stores._http import HttpServer
from tests.stores._s3 import Bucket
from tests.stores._servers import moto, tarkit_run

DATA = random.Random(7).randbytes(12_000_000)
DATE = {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
PLAIN = StoreOptions(retries=0, timeout=5)


def anonymous(endpoint: str) -> StoreOptions:
    return PLAIN.replace(endpoint_url=endpoint, anonymous=True)


@each_row(("scheme", "accepted"), [("s3", "identity"), ("gs", "gzip")])
def test_an_object_with_an_encoding_is_read_as_it_is_stored(scheme: str, accepted: str, server: HttpServer) -> None:
    """`Content-Encoding: gzip` is that of the name of a shard, or of a program that uploaded it: nothing is decoded."""
    for size in (1000, 3_000_000):
        data = gzip.compress(DATA[:size], 0)
        server.serve("/bucket/a", data, headers={**DATE, "Content-Encoding": "gzip"})
        assert connect.read_object(f"{scheme}://bucket/a", anonymous(server.url))[0] == data
    assert {headers["accept-encoding"] for _, _, headers in server.log} == {accepted}
    server.log.clear()


def test_a_reply_that_is_longer_than_it_says(server: HttpServer) -> None:
    """As of a server that decodes what it sends: an error, and never the first bytes of it."""
    head = 'HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-999/1000\r\nContent-Length: 1004\r\nETag: "1"\r\n'
    server.serve("/bucket/a", raw=f"{head}Last-Modified: {DATE['Last-Modified']}\r\n\r\n".encode() + bytes(1004))
    with pytest.raises(TarkitError, match="more bytes than it says"):
        connect.read_object("s3://bucket/a", anonymous(server.url))


def test_anonymous_requests_to_google(bucket: Bucket) -> None:
    """They need no credentials, also to write."""
    nobody = anonymous(bucket.server.url)
    for size in (10, 12_000_000):
        upload = connect.create_object(f"gs://bucket/{size}", options=nobody)
        upload.write(DATA[:size])
        upload.close()
        assert connect.read_object(f"gs://bucket/{size}", nobody)[0] == DATA[:size]


@each_row("url", ["s3://bucket/a.tar", "gs://bucket/a.tar", "az://bucket/a.tar"])
def test_no_credentials(url: str, server: HttpServer, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are missing, and not refused."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "name")
    (here / "recipe").write_text("a.txt text:x\n")
    for words in (["cat", url, "-o", "-"], ["create", "recipe", "-o", url]):
        ran = tarkit_run(*words, "--endpoint-url", server.url, "--net-retries", "0", exit=1)
        assert "no credentials" in ran.stderr
        assert "\nhint: set " in ran.stderr


def test_shards_have_checksums(bucket: Bucket) -> None:
    """Those of the objects, in Python and in a manifest, plain and compressed."""
    connect.create_object(f"{bucket.url}x").close()  # the process has the threads of obstore: it lists without a copy
    Path("a.tar").write_bytes(tar({f"{n}.txt": b"%d" % n for n in range(9)}))
    for suffix in ("tar", "tar.zst", "zip"):
        shards = tarkit.open("a.tar").split(f"{bucket.url}s-%d.{suffix}", count=4)
        for shard in shards:
            data = bucket.get(shard.name.removeprefix(bucket.url))
            assert (shard.sha256, shard.stored) == (hashlib.sha256(data).hexdigest(), len(data))
        tarkit_run("split", "a.tar", "-c", "4", "-o", f"{bucket.url}m-%d.{suffix}", "--manifest", "m.tsv")
        rows = [line.split("\t") for line in Path("m.tsv").read_text().splitlines()[1:]]
        assert [(row[2], row[3]) for row in rows] == [(str(shard.stored), shard.sha256) for shard in shards]


def test_hints_for_objects_that_do_not_exist(bucket: Bucket) -> None:
    missing = f"tarkit: {bucket.url}none.tar: No such file or directory\n"
    assert tarkit_run("stats", f"{bucket.url}none.tar", exit=1).stderr == missing
    hint = f"hint: a directory ends in a slash: {bucket.url}none/\n"
    assert tarkit_run("stats", f"{bucket.url}none", exit=1).stderr.endswith(hint)


def test_credentials_that_may_write_and_not_read(bucket: Bucket) -> None:
    """Then nothing is compared."""
    bucket.server.fault = lambda request: "403" if request.what in ("head", "get") else None
    upload = connect.create_object(f"{bucket.url}a", options=StoreOptions(retries=0))
    upload.write(b"x")
    upload.close()
    assert bucket.get("a") == b"x"


# ---- Credentials of s3:// from the files of the AWS tools


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, here: Path) -> Path:
    """The directory of the two files, `config` and `credentials`."""
    pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(here / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(here / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    buckets._open.cache_clear()
    return here


def keys() -> tuple[object, ...] | None:
    """The id, the secret and the token that the profile has."""
    provider = aws.credential_provider(PLAIN)
    if provider is None:
        return None
    found = provider()
    return found["access_key_id"], found["secret_access_key"], found["token"]


def test_profiles(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys come from the files, unless variables are set."""
    plain = "[default]\naws_access_key_id = a\naws_secret_access_key = b%c\n"
    (files / "credentials").write_text(f"{plain}[two]\naws_access_key_id=z\n")
    (files / "config").write_text("[default]\nregion = eu-west-1\n[profile two]\nendpoint_url = http://localhost\n")
    assert keys() == ("a", "b%c", None)
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
    server.serve("/b/a.tar", b"x", headers=DATE)
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
    assert keys() == ("a", "b", "c")


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The address of moto."""
    with moto() as url:
        yield url


@each_row("variable", ["AWS_REGION", "AWS_DEFAULT_REGION", ""])
def test_keys_of_a_role(variable: str, endpoint: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 asks the service for them, in the region of the profile or of either variable."""
    region = "" if variable else "region = us-east-1\n"
    role = "role_arn = arn:aws:iam::123456789012:role/x\nsource_profile = q\n"
    other = "[profile q]\naws_access_key_id=q\naws_secret_access_key=q\n"
    (files / "config").write_text(f"[profile p]\n{role}{region}{other}")
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_PROFILE", "p")
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            patch.delenv(name, raising=False)
        if variable:
            patch.setenv(variable, "us-east-1")
        buckets._open.cache_clear()
        id, _, token = keys() or ("q", "", "")
    assert id != "q"
    assert token


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
    with pytest.raises(TarkitError, match=r"^s3://b/a\.tar: the AWS profile default .* the command of cred") as raised:
        connect.head_object("s3://b/a.tar", PLAIN)
    assert "\n" not in str(raised.value)
