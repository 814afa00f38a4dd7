"""Names of objects: a request is for the object of exactly this name, or there is none."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("urllib3")

from tarkit.errors import TarkitError, Usage
from tarkit.stores import connect
from tarkit.stores.schemes import public_name
from tarkit.stores.store import StoreOptions
from tests._tools import each_row
from tests.stores._http import Handler, listening

OPTIONS = StoreOptions(retries=0, timeout=5)
PARTS = ("a", ".a", "a.", "...", "..a", "a b", "%", "%2f", "é", "?", "#x", "%252e")
"""Parts of names that stay as they are."""
DOTS = (".", "..", "%2e", "%2E%2e", ".%2E", "%2e.")
START = {"ais": "ais://b/", "hf": "hf://datasets/org/set@main/", "s3": "s3://b/"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths of the requests to a server that has nothing."""
    paths: list[str] = []

    class Nothing(Handler):
        def do_GET(self) -> None:
            self.body()
            path = urlsplit(self.path).path
            known = b'{"sha": "%s"}' % (b"a" * 40) if "/revision/" in path else b""
            if not known:
                paths.append(path)
            self.answer(200 if known else 404, {}, known)

        do_HEAD = do_DELETE = do_PUT = do_GET

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "HF_TOKEN"):
        monkeypatch.setenv(name, "x")
    with listening(Nothing) as endpoint:
        for name in ("AIS_ENDPOINT", "HF_ENDPOINT", "AWS_ENDPOINT_URL"):
            monkeypatch.setenv(name, endpoint)
        yield paths


def calls(url: str, start: str = "") -> dict[str, Callable[[], object]]:
    """Return the operations on an object, and a list of the names that begin so."""
    return {
        "read": lambda: connect.open_object(url, OPTIONS),
        "head": lambda: connect.head_object(url, OPTIONS),
        "write": lambda: connect.create_object(url, options=OPTIONS),
        "remove": lambda: connect.delete_object(url, OPTIONS),
        "list": lambda: list(connect.list_objects(start or f"{url}/x", OPTIONS)),
    }


@each_row("scheme", sorted(START))
@each_row("seed", range(40))
def test_names_that_stand_for_others_are_refused(scheme: str, seed: int, asked: list[str]) -> None:
    """In all stores, for every operation, before a request."""
    pick = random.Random(seed)
    parts = [*pick.choices(PARTS, k=pick.randrange(3)), pick.choice((*DOTS, "")), *pick.choices(PARTS, k=2)]
    asked.clear()
    refused(calls(START[scheme] + "/".join(parts)), "", scheme)
    assert asked == []


def refused(operations: dict[str, Callable[[], object]], why: str, scheme: str) -> None:
    """Check that operations are refused; those of hf that write are never possible."""
    for what, call in operations.items():
        if scheme != "hf" or what not in ("write", "remove"):
            with pytest.raises(Usage, match=f"the library cannot name this object: .*{why}") as raised:
                call()
            assert "\n" not in str(raised.value), what


NAMES = {
    "/k": "begins with a slash", "k//j": "nothing between two slashes", "k/": "ends in a slash",
    "k//": "nothing between two slashes", "a/../b": "a part between slashes is . or ..",
    "./a": "a part between slashes is . or ..", "..": "a part between slashes is . or ..", "a\nb": "a line end",
    "a\x7f": "a line end", "a\udc80": "not valid UTF-8",
}  # fmt: skip


@each_row("scheme", ["s3", "gs", "az"])
@each_row("key", sorted(NAMES))
def test_names_that_obstore_changes_are_refused(scheme: str, key: str, asked: list[str]) -> None:
    """It leaves out slashes at both ends, and panics at others."""
    pytest.importorskip("obstore")
    url = f"{scheme}://bucket/{key}"
    operations = calls(url, url)
    if key in ("k/", ".."):  # which names begin with
        del operations["list"]
    refused(operations, NAMES[key], scheme)
    assert asked == []


@each_row(
    "url",
    [
        "ais://../b/a.tar",
        "ais://./a.tar",
        "ais://%2e%2E/b/a.tar",
        "ais://b/..",
        "ais://@uuid#ns/../a.tar",
        "hf://datasets/../../a.tar",
        "hf://datasets/org/../a.tar",
        "hf://../set/a.tar",
        "hf://datasets/org/set@../a.tar",
        "hf://datasets/org/set@%2E%2E/a.tar",
        "hf://datasets/org/set@x%2F..%2F..%2Fy/a.tar",
        "hf://datasets/org/set@main/..",
    ],
)
def test_what_comes_before_the_name(url: str, asked: list[str]) -> None:
    """A bucket, a repository and a revision are no way out either."""
    asked.clear()
    for call in (connect.open_object, connect.head_object):
        with pytest.raises(Usage):
            call(url, OPTIONS)
    with pytest.raises(Usage):
        list(connect.list_objects(f"{url}/x", OPTIONS))
    assert asked == []


@each_row("scheme", ["ais", "hf"])
@each_row("seed", range(40))
def test_other_names_are_sent_as_they_are(scheme: str, seed: int, asked: list[str]) -> None:
    pick = random.Random(seed)
    name = "/".join(pick.choices(PARTS, k=pick.randrange(1, 5)))
    asked.clear()
    with pytest.raises((TarkitError, FileNotFoundError)):
        connect.head_object(START[scheme] + name, OPTIONS)
    assert {unquote(path).removesuffix(name)[-2:] for path in asked} <= {"b/", "a/"}
    assert asked


# ---- In messages


@each_row(
    "name",
    ["sig", "X-Amz-Signature", "token", "access_token", "client_secret", "password", "pass", "pwd", "apikey", "auth"]
    + ["Authorization", "jwt", "code", "auth_code", "CODE", "X-Amz-Credential", "passphrase"],
)
@each_row("place", ["?{}", "?a=b&{}", "?a=b;{}", "#{}", "?a=b#{}", "#a=b&{}", ";{}", "?{}&c=d", "?{};c=d", "?{}#c"])
@each_row("value", ["s3cret", "s3cret/s3cret=", "s3cret;s3cret", "", "%73s3cret"])
def test_secrets_in_urls_are_masked(name: str, place: str, value: str) -> None:
    shown = public_name("https://me:s3cret@host/dir/a.tar" + place.format(f"{name}={value}"))
    assert shown.startswith("https://host/dir/a.tar" + place.partition("{")[0] + f"{name}=***")
    assert "s3cret" not in shown


@each_row(
    ("url", "name"),
    [
        ("s3://bucket/key=5/a.tar", None),
        ("https://host/a.tar?author=x&size=5#part=2", None),
        ("https://host/code.tar?codec=zstd&encoding=x", None),
        ("s3://bucket/a;b/c#d.tar", None),
        ("https://host/token/a.tar?a=token", None),
        ("https://me:secret@h/x@y.tar", "https://***@y.tar"),
        ("https://h/\n", "'https://h/\\x0a'"),
    ],
)
def test_the_rest_of_a_url_is_shown(url: str, name: str | None) -> None:
    assert public_name(url) == (name or url)
