"""tarkit stats: exact counts from every kind of input, from headers only, and the same for any -p."""

from __future__ import annotations

import gzip
import io
import json
import re
import statistics
import tarfile
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.display import census
from tarkit.display.census import Sizes, count, count_samples, round_bins, shares_of
from tarkit.display.report import range_words
from tarkit.problems import Policy
from tarkit.sizes import size_words
from tarkit.tar.block import BLOCK
from tests._tools import each_row, on_disk
from tests.conftest import GNU, PAX, Archive, Content, Feed, Link, Run, each_feed, on_terminal, tar
from tests.laws.test_laws import archives

ROWS: list[tuple[str, Content]] = [
    ("d", None),
    ("d/a.jpg", b"J" * 1000),
    ("d/a.cls", b"12"),
    ("d/README", b"readme"),
    ("d/b.jpg", b"J" * 10),
    ("d/b.seg.png", b""),
    ("d/b.cls", b"3"),
    ("c.cls", b"4"),
    ("c.jpg", b"J" * 600),
]


def told(run: Run, *words: str, **settings: Any) -> Any:
    """Return the output of --json."""
    return json.loads(run("stats", *words, "--json", **settings).stdout)


@each_feed
def test_counts(run: Run, archive: Archive, feed: Feed) -> None:
    """Samples, entries, fields and sets are counted, and each byte of the archive in one category."""
    found = told(run, feed(archive(ROWS)))
    assert (found["samples"], found["entries"], found["strays"]) == (3, 9, 2)
    content = sum(len(data) for _, data in ROWS if isinstance(data, bytes))
    padded = sum(len(data) + -len(data) % BLOCK for _, data in ROWS if isinstance(data, bytes))
    assert (found["content"], found["headers"], found["padding"]) == (content, 9 * BLOCK, padded - content)
    assert found["bytes"] == len(tar(ROWS)) == 9 * BLOCK + padded + found["end"]
    fields = {
        name: (each["count"], each["bytes"], each["least"], each["median"], each["most"])
        for name, each in found["fields"].items()
    }
    assert fields == {"jpg": (3, 1610, 10, 600, 1000), "cls": (3, 4, 1, 1, 2), "seg.png": (1, 0, 0, 0, 0)}
    edges = (10, 20, 50, 100, 200, 500, 1000, 2000)
    assert found["fields"]["jpg"]["histogram"] == [
        {"from": low, "to": high - 1, "count": {10: 1, 500: 1, 1000: 1}.get(low, 0)} for low, high in pairwise(edges)
    ]
    assert found["sets"] == [
        {"fields": ["cls", "jpg"], "samples": 2},
        {"fields": ["cls", "jpg", "seg.png"], "samples": 1},
    ]


@each_feed
def test_text(run: Run, archive: Archive, feed: Feed) -> None:
    """A pipe gets plain lines."""
    lines = run("stats", feed(archive(ROWS))).stdout.decode().splitlines()
    assert lines[:10] == [
        "Summary",
        "  samples        3",
        "  shards         1",
        "  entries        9  2 without key",
        "  bytes    10.2 kB  10 240 as tar",
        "  content  1.62 kB  15.8 %",
        "  headers  4.61 kB  45.0 %",
        "  padding  2.99 kB  29.2 %",
        "  end      1.02 kB  10.0 %",
        "  84.2 % is not content: each entry costs 512 bytes and fills up its last 512",
    ]
    assert "  jpg          3  100.0 %  1.61 kB  10 B   600 B  1.00 kB  █    ██" in lines
    assert "  cls jpg                2  66.7 %  ████████████████████" in lines
    assert "  1 to 2 kB          1  ██████████████████████████████" in lines


@each_feed
def test_extensions_links_and_sparse_files(run: Run, archive: Archive, feed: Feed) -> None:
    """Long names have more header bytes, links no content; a sparse file has the size in its records."""
    rows: list[tuple[str, Content]] = [("x" * 120 + ".a", b"1"), ("x" * 120 + ".b", Link("x" * 120 + ".a"))]
    for format, extensions in ((GNU, 3 * 1024), (PAX, 2 * 1024)):
        found = told(run, feed(archive(rows, format=format)))
        assert (found["samples"], found["entries"], found["content"]) == (1, 2, 1)
        assert found["extensions"] >= extensions
        assert found["headers"] == found["extensions"] + 2 * BLOCK
        assert found["bytes"] == len(tar(rows, format))
        assert {name: each["bytes"] for name, each in found["fields"].items()} == {"a": 1, "b": 0}
    for path in sorted((Path(__file__).parents[1] / "data").glob("*sparse*.tar")):
        with tarfile.open(path) as file:
            expected = sum(info.size for info in file if info.isreg() and "." in info.name)
        Path("sparse.tar").write_bytes(path.read_bytes())
        found = told(run, feed("sparse.tar"))
        assert sum(each["bytes"] for each in found["fields"].values()) == expected
        assert found["bytes"] == path.stat().st_size


@each_feed
def test_global_headers(run: Run, archive: Archive, feed: Feed) -> None:
    """Global headers are no entries, and count as extensions, also with selected samples or allowed problems."""
    name = feed(archive(tar(ROWS, PAX, pax_headers={"comment": "x" * 600})))
    found = told(run, name)
    assert (found["entries"], found["strays"], found["samples"]) == (9, 2, 3)
    assert found["content"] == sum(len(data) for _, data in ROWS if isinstance(data, bytes))
    assert found["extensions"] == 512 + len("612 comment=\n") + 600
    assert found == told(run, name, "--allow", "truncated")
    chosen = told(run, name, "--match", "")
    assert {**chosen, "bytes": 0, "end": 0, "shards": []} == {**found, "bytes": 0, "end": 0, "shards": []}


def by_tarfile(data: bytes) -> dict[str, Any]:
    """Return the same counts from the entries that Python's tarfile lists."""
    found: list[tuple[str, str, int]] = []
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8") as file:
        for info in file:
            folder, slash, base = info.name.rpartition("/")
            key, dot, field = base.partition(".")
            if key and dot and not info.isdir():
                found.append((folder + slash + key, field, info.size))
        entries = len(file.getmembers())
    fields: dict[str, list[int]] = {}
    for _, field, size in found:
        fields.setdefault(field, []).append(size)
    return {
        "samples": len([key for key, _ in groupby(row[0] for row in found)]),
        "entries": entries,
        "strays": entries - len(found),
        "fields": {name: (len(each), sum(each), min(each), max(each)) for name, each in fields.items()},
    }


@settings(max_examples=20)
@given(archives())
def test_counted_as_tarfile_sees_it(data: bytes) -> None:
    """Counts from headers, or sample by sample, equal those of Python's tarfile."""
    expected = by_tarfile(data)
    fast, slow = count(on_disk(data), Policy()), count_samples(on_disk(data), Policy(allow=["all"]))
    for found in (fast, slow):
        assert {name: getattr(found, name) for name in ("samples", "entries", "strays")} == {
            name: expected[name] for name in ("samples", "entries", "strays")
        }
        fields = {
            name.decode("utf-8", "surrogateescape"): (each.count, each.bytes, each.minimum, each.maximum)
            for name, each in found.fields.items()
        }
        assert fields == expected["fields"]
        assert found.size == len(data)
    slow.fields, fast.fields = {}, {}
    assert slow == fast


def bytes_read() -> int:
    """Return how many bytes this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system does not count what a process reads")
def test_few_bytes_are_read() -> None:
    """Of a file with large entries between small ones under 5 % is read, in Python and in C."""
    data = tar({f"{n:04}.{field}.npy": bytes(size) for n in range(200) for field, size in (("a", 100_000), ("b", 136))})
    source = on_disk(data)
    before = bytes_read()
    assert count(source, Policy()).samples == 200
    assert 200 * BLOCK < bytes_read() - before < 0.05 * len(data)


# ---- several inputs


@pytest.mark.forks
def test_shards(run: Run, archive: Archive) -> None:
    """Counts of each input and of all are the same for any -p, in the order of the inputs."""
    names = [archive({f"{s}{n}.cls": b"x" * (s + 1) for n in range(s + 1)}, f"{s}.tar") for s in range(4)]
    found = told(run, *names)
    assert [(each["name"], each["samples"]) for each in found["shards"]] == [(f"{s}.tar", s + 1) for s in range(4)]
    assert (found["samples"], found["fields"]["cls"]["bytes"]) == (10, 1 + 4 + 9 + 16)
    text = run("stats", *names).stdout.decode()
    assert re.search(r"^  samples +1 +2\.5 +4  0.tar +3.tar$", text, re.M), "the mean of the two in the middle"
    assert re.search(r"^  samples +1 +2 +3  0.tar +2.tar$", run("stats", *names[:3]).stdout.decode(), re.M)
    assert told(run, *names, "-p", "9") == found
    assert run("stats", *names, "-p", "2", "--report", "r.json").stdout.decode() == text
    report = json.loads(Path("r.json").read_text())
    assert (report["samples"], report["shards"], report["bytes"]) == (10, 4, 4 * 10240)


@pytest.mark.forks
@each_row("parallel", ["1", "2"])
def test_errors_of_any_process(parallel: str, run: Run, archive: Archive) -> None:
    """The first bad input ends the run with its message and without an output; --skip continues with a warning."""
    touched = "the damage after it may have destroyed some of its entries"
    good = archive(ROWS)
    bad = archive(tar(ROWS)[:3700], "bad.tar")
    lone = archive({"d/a.x": b"1"}, "lone.tar")
    ran = run("stats", good, bad, "none.tar", "-p", parallel, exit=1)
    assert (ran.stdout, ran.lines[0]) == (b"", "tarkit: none.tar: No such file or directory")
    ran = run("stats", good, bad, lone, bad, "-p", parallel, exit=1)
    assert ran.stdout == b""
    assert ran.lines[0].startswith("tarkit: bad.tar: at 3700: the input ends inside 'd/README'")
    assert ran.lines[1].startswith("hint: ")
    ran = run("stats", good, bad, lone, "--skip", "truncated", "--json", "-p", parallel)
    assert [each["samples"] for each in json.loads(ran.stdout)["shards"]] == [3, 0, 1]
    assert [line for line in ran.lines if "warning" in line] == [
        "tarkit: warning: bad.tar: at 3700: the input ends inside 'd/README', which needs 396 bytes more [truncated]",
        f"tarkit: warning: bad.tar: at 0: the sample 'd/a' is left out: {touched}",
    ]
    assert ran.lines[-1].endswith("skipped for truncated: 1 (1 sample left out)")
    ran = run("stats", good, bad, bad, "--maxerr", "1", "-p", parallel, exit=1)
    assert "[truncated]" in ran.stderr


@each_feed
def test_unsafe_names_are_told_of(run: Run, archive: Archive, feed: Feed) -> None:
    """Unsafe names are warnings, as in other commands."""
    for options in ((), ("--allow", "truncated"), ("--match", "")):
        ran = run("stats", feed(archive({"../a.x": b"1"})), "--total", *options)
        assert (ran.stdout, len(ran.lines)) == (b"1\n", 1)
        assert ran.lines[0].endswith("[unsafe-name]")


@each_feed
def test_no_samples(run: Run, archive: Archive, feed: Feed) -> None:
    """An archive without entries, or without samples, is no error."""
    name = feed(archive({}))
    assert run("stats", name, "--total").stdout == b"0\n"
    assert told(run, name)["bytes"] == 10240
    assert run("stats", name).stdout
    found = told(run, feed(archive({"README": b"r"}, "r.tar")))
    assert (found["samples"], found["strays"], found["content"]) == (0, 1, 1)


def test_the_bar_knows_its_end(run: Run, archive: Archive) -> None:
    """The bar shows bytes out of those of all inputs, if these are plain files."""
    names = [archive(ROWS, "1.tar"), archive(ROWS, "2.tar")]
    for words in (("stats",), ("stats", "--match", ""), ("check",)):
        stderr = run(*words, "--progress", *names, exit=None).stderr
        assert "/20.5k [" in stderr
        assert "100%" in stderr
    Path("1.tar.gz").write_bytes(gzip.compress(Path("1.tar").read_bytes()))
    assert "%" not in run("stats", "--progress", "1.tar.gz").stderr


# ---- classes

CLASSED: dict[str, Content] = {
    **{f"{i}.cls": b"%d\n" % (i % 3) for i in range(8)},
    **{f"{i}.json": json.dumps({"a": {"b": "xy"[i % 2]}, "l": [1, "\u00e9"]}).encode() for i in range(8)},
    "8.txt": b"no class",
}


@each_feed
def test_by(run: Run, archive: Archive, feed: Feed) -> None:
    """The values of a field are counted, the most frequent first; classes.txt has their names."""
    name = feed(archive(sorted(CLASSED.items())))
    by = told(run, name, "--by", "cls")["by"]
    counts = [{"value": "0", "samples": 3}, {"value": "1", "samples": 3}, {"value": "2", "samples": 2}]
    assert by == {"field": "cls", "classes": counts, "missing": 1}
    assert told(run, name, "--by", "json.a.b", "--match", "[0-6]")["by"]["classes"] == [
        {"value": "x", "samples": 4}, {"value": "y", "samples": 3}
    ]  # fmt: skip
    assert told(run, name, "--by", "json.l")["by"]["classes"] == [{"value": '[1, "\u00e9"]', "samples": 8}]
    Path("names").write_text("cat\ndog\n")
    lines = run("stats", name, "--by", "cls", "--classes", "names").stdout.decode().splitlines()
    at = lines.index("Classes by cls")
    assert lines[at + 1 : at + 7] == [
        "  class       samples   share",
        "  cat               3  33.3 %  ██████████████████████████████",
        "  dog               3  33.3 %  ██████████████████████████████",
        "  2                 2  22.2 %  ████████████████████",
        "  (no value)        1  11.1 %  ██████████",
        "  3 classes; the largest has 1.5 times as many as the smallest",
    ]
    lines = run("stats", name, "--by", "cls", "--match", "[0-5]").stdout.decode().splitlines()
    assert "  3 classes; equally many samples in each" in lines
    assert told(run, name, "--by", "cls", "--classes", "names")["by"]["classes"][1] == {
        "value": "1", "name": "dog", "samples": 3
    }  # fmt: skip


@pytest.mark.forks
def test_by_counts_the_same_otherwise(run: Run, archive: Archive) -> None:
    """--by does not change other counts, in several processes as well; classes.txt is beside a shard."""
    names = [archive(ROWS, "1.tar"), archive(tar(sorted(CLASSED.items()), PAX), "2.tar")]
    plain = told(run, *names)
    Path("classes.txt").write_text("cat\ndog\n")
    for words in ((), ("-p", "2")):
        found = told(run, *names, "--by", "cls", *words)
        by = found.pop("by")
        assert found == plain
        assert [(each["value"], each.get("name"), each["samples"]) for each in by["classes"]] == [
            ("0", "cat", 3), ("1", "dog", 3), ("2", None, 2), ("3", None, 1), ("4", None, 1), ("12", None, 1)
        ]  # fmt: skip


def test_by_what_is_not_there(run: Run, archive: Archive) -> None:
    """A field that no sample has is a warning; one that is not text is an error that can be allowed."""
    name = archive({"a.cls": b"1", "a.jpg": b"\xff\xd8\xff"})
    ran = run("stats", name, "--by", "clss")
    assert ran.lines == ["tarkit: warning: no sample has 'clss'; did you mean 'cls'?"]
    assert "[bad-field]" in run("stats", name, "--by", "jpg", exit=1).stderr
    assert told(run, name, "--by", "jpg", "--allow", "bad-field")["by"] == {"field": "jpg", "classes": [], "missing": 1}


# ---- shares of nodes and workers


def test_shares(run: Run, archive: Archive) -> None:
    """Shard i goes to node i mod W, of these shard j to worker j mod K; a node without a shard is reported."""
    names = [archive({f"{s}{n}.x": b"" for n in range(s + 1)}, f"{s}.tar") for s in range(5)]
    shares = told(run, *names, "--world", "2", "--workers", "2")["shares"]
    parts = [(0, None, 3, 9), (0, 0, 2, 6), (0, 1, 1, 3), (1, None, 2, 6), (1, 0, 1, 2), (1, 1, 1, 4)]
    assert [tuple(each.values()) for each in shares] == parts
    text = run("stats", *names, "--world", "8").stdout.decode()
    assert "  0 to 5 samples each; 3 of 8 get no shard\n" in text
    assert [each["samples"] for each in told(run, *names, "--workers", "2")["shares"]] == [15, 9, 6]


def test_shares_are_those_of_webdataset() -> None:
    """webdataset's own functions assign the same shards."""
    wds = pytest.importorskip("webdataset.shardlists")
    urls = list(range(20))
    for world, workers in ((3, 2), (1, 4), (7, 1), (4, 4)):
        expected = []
        for node in range(world):
            mine = list(wds.islice(urls, node, None, world))
            expected += [sum(mine)] + [sum(mine[w::workers]) for w in range(workers if workers > 1 else 0)]
        assert [each.samples for each in shares_of(urls, world, workers)] == expected


# ---- sizes


@settings(max_examples=25)
@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=100), st.integers(1, 50), st.integers(1, 9))
def test_sizes(values: list[int], distinct: int, pieces: int) -> None:
    """Few different sizes are exact; of many the median is at most 1/256 too small, and all else is exact."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(census, "DISTINCT", distinct)
        found = Sizes()
        for piece in range(pieces):
            one = Sizes()
            one.add(values[piece::pieces])
            found.merge(one)
    median = statistics.median(values)
    assert (found.count, found.bytes) == (len(values), sum(values))
    assert sum(count for _, _, count in found.bins()) == len(values)
    assert median * 255 / 256 <= found.median <= median
    assert found.minimum * 1.004 + 1 >= min(values) >= found.minimum
    assert found.exact == (len(set(values)) <= distinct) or not found.exact
    if found.exact:
        assert (found.median, found.minimum, found.maximum) == (median, min(values), max(values))


@each_row(
    ("low", "high", "words"),
    [(0, 0, "0 B"), (0, 4, "0 to 5 B"), (54, 55, "54 to 56 B"), (500, 999, "500 B to 1 kB"),
     (1200, 1399, "1.2 to 1.4 kB"), (112_600, 112_799, "112.6 to 112.8 kB"), (10**18, 2 * 10**18 - 1, "1 to 2 EB")],
)  # fmt: skip
def test_range_words(low: int, high: int, words: str) -> None:
    """A range is as short as possible."""
    assert range_words(low, high) == words


@each_row(
    ("sizes", "edges", "counts"),
    [
        ({}, [], {}),
        ({7: 2}, [7, 8], {7: 2}),
        ({0: 1, 3: 1}, range(5), {0: 1, 3: 1}),
        ({54: 1, 69: 2}, range(54, 71, 2), {54: 1, 68: 2}),
        ({1000: 1, 3100: 1}, range(1000, 3201, 200), {1000: 1, 3000: 1}),
        ({0: 1, 40: 2, 250: 3}, [0, 1, 2, 5, 10, 20, 50, 100, 200, 500], {0: 1, 20: 2, 200: 3}),
        ({1: 1, 1 << 60: 1}, census._ROUND[:56], {1: 1, 10**18: 1}),
    ],
)
def test_round_bins(sizes: dict[int, int], edges: Sequence[int], counts: dict[int, int]) -> None:
    """Bins have equal width for similar sizes, else factors of 1, 2, 5; there are no gaps."""
    assert round_bins(sizes) == [(low, high - 1, counts.get(low, 0)) for low, high in pairwise(edges)]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes, fields and sets are kept up to a limit."""
    monkeypatch.setattr(census, "DISTINCT", 1 << 12)
    found = Sizes()
    found.add(list(range(0, 400_000, 25)))
    assert not found.exact
    assert len(found.counts) < 6000
    assert (found.minimum, found.median, found.maximum) == (0, 199_680, 399_975)
    monkeypatch.setattr(census, "MOST", 3)
    rows = {f"{n}.{field}": b"x" for n in range(9) for field in (f"f{n}", "cls")}
    found_fields = count(on_disk(tar(rows)), Policy())
    assert list(found_fields.fields) == [b"f0", b"cls", b"f1", b"/"]
    assert found_fields.fields[b"/"].count == 7
    assert found_fields.sets[(b"/",)] == 6
    assert sum(found_fields.sets.values()) == found_fields.samples == 9


def test_sizes_with_units() -> None:
    """A size has three digits, and a unit of powers of 1000."""
    cases = {0: "0 B", 999: "999 B", 1000: "1.00 kB", 9994: "9.99 kB", 9995: "10.0 kB", 99_949: "99.9 kB"}
    cases |= {99_950: "100 kB", 999_499: "999 kB", 999_500: "1.00 MB", 5 * 10**21: "5000 EB"}
    for value, expected in cases.items():
        assert size_words(value) == expected


# ---- text and pages

HOSTILE = {
    "<script>alert(1)</script>": b"1",
    'a."><img src=x onerror=alert(1)>': b"1",
    "a.\x1b[31m": b"2",
    "a.\udce9": b"3",
}


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_html(run: Run, archive: Archive) -> None:
    """There is one page without scripts and external addresses; names are text, in JSON with all their bytes."""
    name = archive(HOSTILE, "<b>&.tar")
    assert b"\x1b" not in run("stats", name).stdout
    assert set(told(run, name)["fields"]) == {'"><img src=x onerror=alert(1)>', "\x1b[31m", "\udce9"}
    assert run("stats", name, "--html", "page.html").stdout == b""
    text = Path("page.html").read_text()
    page = Page(text)
    assert not {"script", "img", "link", "iframe", "b"} & set(page.tags)
    assert not re.search(r"https?:|url\(|@import|\x1b", text)
    assert "prefers-color-scheme: dark" in text
    assert page.text.count("<b>&.tar") == 2
    assert re.search("default-src 'none'; style-src 'sha256-[^ ]*'; base-uri 'none'", text)
    assert "'\"><img src=x onerror=alert(1)>'" in page.text
    assert "\\x1b[31m" in page.text
    assert "\\xe9" in page.text


def test_html_has_the_report(run: Run, archive: Archive) -> None:
    """Each section has its rows, including classes. The page gets its name at the end."""
    run("stats", archive(tar(ROWS)[:3000]), "--html", "page.html", exit=1)
    assert not Path("page.html").exists()
    assert run("stats", archive(ROWS), "--html", "-").stdout.startswith(b"<!doctype html>")
    run("stats", archive(ROWS), "--by", "cls", "--html", "page.html")
    text = Path("page.html").read_text()
    titles = ["Summary", "Fields", "Classes by cls", "Sets of fields", "Sizes of jpg", "Sizes of cls"]
    assert re.findall("<h2>(.*?)</h2>", text) == titles
    assert re.findall("<dt>samples</dt><dd>(.*?)</dd>", text) == ["3"]
    assert text.count("<td>cls jpg</td>") == text.count("<td>12</td>".replace("<td>", '<td class="n">')) == 1
    assert '<rect width="100.0%"' in text


def test_a_terminal(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal has colours unless disabled; the text is the same."""
    name = archive([*ROWS, ("e.\x1b[31m", b"1")])

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured, _ = on_terminal("stats", name)
    assert "\x1b[" in coloured
    assert "\x1b[31m" not in coloured
    words = re.sub(r"\x1b\[[0-9;]*m", "", coloured).split()
    monkeypatch.setenv("NO_COLOR", "1")
    assert on_terminal("stats", name)[0].split() == words == run("stats", name).stdout.decode().split()


def test_a_sample_of_many_fields(run: Run, archive: Archive) -> None:
    """Fields in any order are counted once, duplicates found; the time is linear in their number."""
    names = [f"k.{number * 7919 % 307:03d}" for number in range(306)]
    members = [(name, b"x" * (number % 3)) for number, name in enumerate(names)]
    counted = json.loads(run("stats", archive([("j.a", b"1"), *members, ("l.a", b"22")]), "--json").stdout)
    assert (counted["samples"], counted["entries"], counted["content"]) == (3, 308, 309)
    assert [counted["fields"][name]["count"] for name in ("a", "001", "299")] == [2, 1, 1]
    for again in (names[0], names[70], names[305]):
        ran = run("stats", archive([*members, (again, b"")]), exit=1)
        assert f"{again!r} occurs twice [duplicate-entry]" in ran.stderr


def test_colours_of_classes(run: Run, archive: Archive) -> None:
    """A class has the same colour in the report and in the gallery, also among equally frequent ones."""
    name = archive({f"{number}.cls": value for number, value in enumerate(b"10 9 2 2 9 10 2".split())})
    run("stats", name, "--by", "cls", "--html", "stats.html")
    run("show", name, "--by", "cls", "--html", "gallery.html")
    rows = re.findall(r"<tr><td[^>]*>(\d+)</td>.*?<td class=\"long (hue\d)\"", Path("stats.html").read_text())
    bars = re.findall(r'<tr class="(hue\d)"><th scope="row"><button[^>]*>(\d+)<', Path("gallery.html").read_text())
    assert rows == [(value, hue) for hue, value in bars] == [("2", "hue0"), ("9", "hue1"), ("10", "hue2")]
