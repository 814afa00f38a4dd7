"""Names of inputs as webdataset takes them: compared with its own functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tarkit.errors import TarkitError, Usage
from tarkit.stores import connect, rewrite, schemes
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import expand_inputs
from tarkit.tables.recipe import MalformedRow, parse_source
from tests._tools import each_row
from tests.conftest import Archive, Run, keys

Set = Callable[..., None]
NAMES = (
    *("gs://b/x.tar", "s3://bk/y.tar", "/z.tar", "http://h/a.tar?x=1;y=2", "pipe:cat /z.tar", "x", "file:/z.tar"),
    "GS://b/x.tar",
)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Set:
    def set_all(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return set_all


def names(*words: str) -> list[str]:
    return [f"{location.kind} {location.text}" for location in expand_inputs(words)]


@each_row(
    "rules",
    [
        r"gs://=/shared/data/;s3://([^/]+)/=http://m/\1/",
        "gs://=pipe:ssh proxyhost gsutil cat gs://",
        "http://h/=http://other/?a=b&c=",
        "s=t;s3://=gs://",
        "s=s;s3://=gs://",
        ".*=one",
        "=before-",
        r"(?P<scheme>\w+)://=\g<scheme>s://",
        r"a|x\.tar=q",
        "b=c",
        r"pipe:cat (.*)=\1",
        "x=",
    ],
)
def test_rules_are_those_of_webdataset(rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gopen = pytest.importorskip("webdataset.gopen")
    monkeypatch.setenv("GOPEN_REWRITE", rules)
    expected = [gopen.rewrite_url(name) for name in NAMES]
    assert rewrite.rewritten(list(NAMES)) == expected
    monkeypatch.delenv("GOPEN_REWRITE")
    monkeypatch.setenv("WDS_REWRITE", rules)
    assert rewrite.rewritten(list(NAMES)) == expected
    monkeypatch.delenv("WDS_REWRITE")


def test_gopen_rewrite_precedes_wds_rewrite(environment: Set) -> None:
    environment(GOPEN_REWRITE="a=gopen;b=gopen", WDS_REWRITE="a=wds;b=wds;c=wds")
    assert rewrite.rewritten(["a", "b", "c", "d"]) == ["gopen", "gopen", "wds", "d"]


@each_row("rule", ["a", "a;b", "(=x", "(?i)a=b", r"a=\1", r"a=\g<n>", "*=x"])
def test_invalid_rules_are_usage_errors_where_webdataset_fails(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gopen = pytest.importorskip("webdataset.gopen")
    monkeypatch.setenv("GOPEN_REWRITE", rule)
    with pytest.raises((ValueError, IndexError, gopen.re.error)):
        gopen.rewrite_url("a")
    with pytest.raises(Usage, match="GOPEN_REWRITE"):
        rewrite.rewritten(["a"])
    monkeypatch.setenv("GOPEN_REWRITE", "b=c;")  # an empty rule at the end, which fails there, is none
    assert rewrite.rewritten(["b"]) == ["c"]


@each_row(
    ("word", "variables"),
    [
        ("${ROOT}/a.tar::b.tar", {"WDS_ROOT": "/data/${SUB}", "WDS_SUB": "x"}),
        ("http://h/a-{000..003}.tar::http://h/{b,c}.tar", {}),
        ("s3://${B}/x{1..3}", {"WDS_B": "b{1..2}"}),
        ("http://${A}${B}/${A}", {"WDS_A": "1", "WDS_B": "2"}),
        ("${N0}", {**{f"WDS_N{n}": f"${{N{n + 1}}}" for n in range(9)}, "WDS_N9": "http://h/end"}),
        ("pipe:cat ${ROOT}/x.tar::pipe:cat ${ROOT}/y.tar", {"WDS_ROOT": "/data"}),
        ("pipe:cat x-{0..2}.tar", {}),
    ],
)
def test_lists_and_variables_are_those_of_webdataset(
    word: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = pytest.importorskip("webdataset.shardlists")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tarkit.streams.location._look", lambda path: "file" if path[0] in "/b" else "missing")
    found = [location.text for location in expand_inputs([word])]
    assert found == [url.removeprefix("pipe:") for url in lists.expand_urls(word)]


def test_what_differs_from_webdataset(environment: Set, tmp_path: Path) -> None:
    """A variable that is not set is an error, in a command left to the shell; IPv6 addresses are not split."""
    with pytest.raises(Usage, match="WDS_NOPE is not set"):
        names("s3://${NOPE}/a.tar")
    environment(WDS_SELF="x${SELF}", WDS_SET="1")
    with pytest.raises(Usage, match="is replaced more"):
        names("s3://${SELF}")
    assert names("pipe:echo ${NOPE} ${SET}") == ["pipe echo ${NOPE} 1"]
    assert names("http://[::1]:80/a::http://[::1]/b") == ["url http://[::1]:80/a", "url http://[::1]/b"]
    assert names("pipe:perl -MA::B -e x::pipe:perl -MC::D") == ["pipe perl -MA::B -e x", "pipe perl -MC::D"]
    with pytest.raises(Usage, match="empty"):
        names("http://h/a::")
    with pytest.raises(Usage, match="stdin is named more than once"):
        names("-::-")
    path = tmp_path / "a::${b}.tar"
    path.touch()
    assert names(str(path)) == names(f"file:{path}") == [f"path {path}"]
    missing = [f"{tmp_path}/no", f"{tmp_path}/no2"]
    assert [each.text for each in expand_inputs([f"{tmp_path}/a::{tmp_path}/no::{missing[1]}"], missing="all")][
        1:
    ] == missing


def test_rules_apply_to_each_name_of_an_argument(environment: Set, tmp_path: Path) -> None:
    for name in ("x-1.tar", "x-2.tar", "y.tar"):
        (tmp_path / name).touch()
    environment(GOPEN_REWRITE=f"s3://b/={tmp_path}/;gs://=http://h/;/no/=s3://;ais://(.*)=pipe:get \\1 {{0..3}}")
    local = [f"path {tmp_path}/x-1.tar", f"path {tmp_path}/x-2.tar"]
    assert names("s3://b/x-{1..2}.tar") == local
    assert names("s3://b/x-*.tar") == local
    assert names("s3://b/") == [*local, f"path {tmp_path}/y.tar"]
    assert names("s3://b/y.tar::gs://c/{1..2}.tar") == [
        f"path {tmp_path}/y.tar",
        "url http://h/c/1.tar",
        "url http://h/c/2.tar",
    ]
    assert names("/no/b/y.tar") == ["url s3://b/y.tar"]  # a rule is applied once
    assert names("ais://x") == ["pipe get x {0..3}"]  # and no braces are expanded in what it makes
    assert names("s3://other/y.tar") == ["url s3://other/y.tar"]
    with pytest.raises(TarkitError, match=f"{tmp_path}/z.tar: No such file"):
        names("s3://b/z.tar")


def test_an_existing_path_has_precedence_over_rules(environment: Set, tmp_path: Path) -> None:
    (tmp_path / "x-1.tar").touch()
    environment(WDS_REWRITE=f"{tmp_path}=s3:/", GOPEN_REWRITE="-=s3://b/")
    assert names(f"{tmp_path}/x-1.tar", "-") == [f"path {tmp_path}/x-1.tar", "stdin -"]
    assert names(f"{tmp_path}/x-{{1..2}}.tar") == [f"path {tmp_path}/x-1.tar", "url s3://x-2.tar"]
    assert names(f"file:{tmp_path}/x-1.tar") == [f"path {tmp_path}/x-1.tar"]
    listed = tmp_path / "list"
    listed.write_text(f"{tmp_path}/x-2.tar\n")
    assert [location.text for location in expand_inputs([], [str(listed)])] == ["s3://x-2.tar"]


@each_row(
    ("source", "kind", "value"),
    [
        (b"s3://b/\xff.jpg", "path", b"/d/\xff.jpg"),
        (b"gs://b/x", "pipe", b"get b/x"),
        (b"ais://b/x", "url", b"http://h/b/x"),
        (b"az://b/x", "path", b"b/x"),
        (b"http://h/x", "url", b"http://h/x"),
        (b"file:s3://b/x", "path", b"s3://b/x"),
        (b"/d/x", "path", b"/d/x"),
        (b"text:s3://b/", "data", b"s3://b/"),
    ],
)
def test_rules_apply_to_urls_in_recipes(source: bytes, kind: str, value: bytes, environment: Set) -> None:
    environment(GOPEN_REWRITE="s3://b=/d;gs://=pipe:get ;ais://=http://h/;az://=file:;/d=http://no;text:=http://no")
    assert parse_source(source, pipes_allowed=True) == (kind, value)
    if kind == "pipe":
        with pytest.raises(MalformedRow, match="not allowed"):
            parse_source(source, pipes_allowed=False)


def test_rules_of_commands(run: Run, archive: Archive, environment: Set) -> None:
    one = Path(archive({"a.txt": b"x"}, "d/a.tar")).read_bytes()
    archive({"b.txt": b"x"}, "d/b.tar")
    environment(WDS_REWRITE="s3://b/=d/;gs://(.)/(.*)=d/\\2")
    assert run("cat", "s3://b/a.tar").stdout == one
    assert keys(run("cat", "s3://b/a.tar", "gs://x/b.tar").stdout) == "a b"
    environment(WDS_REWRITE="x")
    assert run("cat", "s3://b/a.tar", exit=2).lines[0] == "tarkit: WDS_REWRITE 'x': the rule has no ="


def test_use_ais_for_sends_a_scheme_to_ais(environment: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `gopen_schemes` there: the name stays, the store is that of ais."""
    pytest.importorskip("urllib3")
    monkeypatch.setitem(schemes.SCHEMES, "ais", schemes.Scheme("tests.stores.test_rewrite", "options_alone"))
    environment(USE_AIS_FOR="gs:http")
    options = StoreOptions(retries=71)
    found: list[object] = [connect.store_of(f"{scheme}://b/k", options) for scheme in ("gs", "http", "https")]
    assert found[:2] == [options, options]
    assert found[2] != options
    assert [schemes.is_listed(f"{scheme}://b/") for scheme in ("gs", "http", "https")] == [True, True, False]
    assert schemes.find_scheme("gs://b/k") == schemes.find_scheme("http://b/k") == schemes.SCHEMES["ais"]


def options_alone(options: StoreOptions) -> object:
    """The store of this module: its options."""
    return options
