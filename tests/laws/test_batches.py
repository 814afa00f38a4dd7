"""Samples in batches give what single samples give: bytes, messages, counts and errors, whatever is in an archive."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import TarkitError
from tarkit.samples import columns
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.sample import SampleBatch, singly
from tarkit.spill import multimap
from tarkit.tar import fast, reader
from tests._odd import extension, header, padded
from tests._tools import ROUNDS, slow

EXPRESSIONS = [
    *(
        "endswith(__key__, '7')",
        "__key__ > 'k0100'",
        "size > 20",
        "size.json > 30",
        "cls < 5",
        "cls == 'x'",
        "cls in (1, 3)",
    ),
    *("json.width > 500", "json.width > 500 and cls < 7", "cls < 2 or json.tags[0] == 'a'", "has.json", "not has.cls"),
    *("has(json.width) and json.width < 900", "len(txt) > 3", "'a' in txt", "field('txt') != ''", "str(cls) == '3'"),
    *("offset > 99999", "header.cls > 50000 or offset.cls < 9", "shard == 'x'", "width.jpg > 3", "upper(txt) == 'A'"),
    *(
        "json.tags",
        "json.none is null",
        "CLS < 3",
        "cls % 2 == 1 if has.cls else has.txt",
        "cls.a == 3",
        "match('^k0', __key__)",
        "sha256.txt > '8'",
        "cls < 5 and startswith(sha256.json, 'a')",
    ),
]
"""Expressions over the fields that `archive` writes."""

VALUES = [
    "__key__",
    "shard",
    "size",
    "offset.cls",
    "cls",
    "txt",
    "json.tags",
    "json.width",
    "3",
    "''",
    "'x'",
    "null",
    "true",
]
"""Values of all kinds, which are true or false as well."""


def expression(draw: random.Random, depth: int = 0) -> str:
    """Return one of EXPRESSIONS, or several together."""
    if depth > 2 or draw.random() < 0.4:
        return f"({draw.choice(draw.choice((EXPRESSIONS, VALUES)))})"
    one, two, three = (expression(draw, depth + 1) for _ in range(3))
    return draw.choice(
        (f"({one} and {two})", f"({one} or {two} or {three})", f"not {one}", f"({one} if {two} else {three})")
    )


def content(draw: random.Random, field: str, odd: bool) -> bytes:
    if field == "cls":
        usual = b"%d" % draw.randrange(10) + draw.choice((b"", b"", b"\n"))
        return draw.choice((b"x", b"1_0", b"", b" 3 ", b"\xff", b"2.5", b"1e3", b"\xd9\xa3", b"-1")) if odd else usual
    if field == "json":
        record: dict[str, Any] = {"width": draw.randrange(1000), "tags": ["a", "b"][draw.randrange(2) :]}
        if odd:
            others: list[Any] = [{"tags": []}, [1], 3, {"width": "w", "tags": ["\ud800"]}, {"none": None}]
            usual = json.dumps(draw.choice(others)).encode()
            return draw.choice((b"{", b"", b"\xef\xbb\xbf{}", json.dumps(record).encode("utf-16"), usual, usual))
        return json.dumps(record).encode()
    return draw.choice((b"a", b"cat\n", "é".encode(), b"a\tb", b"back\\slash", b"two\nlines\r")) * draw.choice(
        (1, 1, 1, 300)
    )


def archive(draw: random.Random, oddness: float) -> bytes:
    """Return an archive of plain samples, of which some are odd in one way or another; it may be damaged."""
    layouts = [draw.sample(["cls", "json", "txt"], draw.randint(1, 3)) for _ in range(draw.choice((1, 1, 2)))]
    data, names = [], [b"a.txt"]
    for number in range(draw.choice((1, 7, 80, 400))):
        key = (
            f"k{number:04}"
            if draw.random() >= oddness / 4
            else draw.choice(["k0000", "d.1/é", "d/\udcff", "n" * 120, "../k"])
        )
        layout = (
            draw.choice(layouts) if draw.random() >= oddness else draw.sample(["cls", "json", "txt", "CLS", "jpg"], 3)
        )
        for field in layout:
            name = f"{key}.{field}".encode("utf-8", "surrogateescape")
            body, kind, before, own = content(draw, field.lower(), draw.random() < oddness), b"0", b"", name
            if len(name) > 100 or draw.random() < oddness / 4:
                before, own = extension(draw, name, names)
                if len(name) > 100:
                    before += header(b"././@LongLink", len(name) + 1, b"L") + padded(name + b"\0")
            elif draw.random() < oddness / 4:
                kind = draw.choice((b"0", b"\0", b"1", b"2", b"5", b"7"))
                body = body if kind in b"0\x007" else b""
            data += [before, header(own, len(body), kind, names[-1]), padded(body)]
            names.append(name)
            if draw.random() < oddness / 8:
                data += [header(name, 0, b"0")]  # twice
    whole = b"".join(data) + bytes(1024)
    if draw.random() < oddness:
        place = draw.randrange(len(whole) // 512) * 512 + draw.randrange(100)
        whole = whole[:place] + (b"" if draw.random() < 0.3 else bytes([whole[place] ^ 1]) + whole[place + 1 :])
    return whole


def chain(draw: random.Random, data: Any) -> tuple[str, Any]:
    """Return a dataset with steps, and their names."""
    words = []
    for _ in range(draw.choice((1, 1, 2))):
        name, arguments = draw.choice(STEPS)(draw)
        words.append(f"{name}{arguments}")
        data = getattr(data, name)(*arguments)
    return " ".join(words), data


STEPS: list[Any] = [
    *[lambda draw: ("where", (draw.choice(EXPRESSIONS),))] * 6,
    lambda draw: ("match", (draw.choice(("7$", "^k00", "é")),)),
    lambda draw: ("sample", (0.4, 3)),
    lambda draw: ("slice", (draw.randrange(9), draw.choice((None, 5, 90)), draw.choice((1, 1, 3)))),
    lambda draw: ("select", (draw.choice(("cls", "json cls", "label:cls txt", "txt", "a:cls b:cls")),)),
    lambda draw: ("drop", (draw.choice(("json", "c*", "none")),)),
    lambda draw: (
        "rekey",
        (draw.choice(("x/{key}", "{index:06d}", "{stem}-{key}", "n" * 90 + "{key}", "{key}.b", "one")),),
    ),
]


def output(draw: random.Random, data: Any, place: Path) -> tuple[str, Any]:
    """Write a dataset; return how, and what was written or is known of it."""
    how = draw.choice(("write", "write", "write", "table", "keys", "split"))
    if how == "write":
        data.write(place / "out.tar")
    elif how == "table":
        columns = draw.choice(
            (
                "cls",
                "cls size.json",
                "__key__ json.width",
                "txt;cls size",
                "new:cls",
                "shard offset cls",
                "sha256.txt cls",
                None,
            )
        )
        suffix = draw.choice(("tsv", "csv", "jsonl"))
        missing = draw.choice(("error", "skip", "keep"))
        data.table(place / f"out.{suffix}", columns, on_missing=missing)
    elif how == "split":
        return how, [shard.samples for shard in data.split(place / "out-%d.tar", count=50, max_shards=3)]
    else:
        return how, [(sample.key, list(sample), sample.start if hasattr(sample, "start") else 0) for sample in data]
    return how, None


def result(seed: int, inputs: Any, here: Path) -> tuple[Any, ...]:
    """Return all that can be seen of a chain: its files, messages, facts and errors."""
    draw, said = random.Random(seed), list[str]()
    place = here / "out"
    place.mkdir()
    problems = (
        "missing-field",
        "bad-field",
        "scattered-sample",
        "bad-header",
        "truncated",
        "duplicate-entry",
        "unsafe-name",
    )
    problems = (
        *problems,
        "unmovable-entry",
        "repeated-key",
        "joined-sample",
        "sparse-entry",
        "trailing-data",
        "no-end-marker",
    )
    skip = draw.choice(((), problems))
    allow = () if skip else draw.choice(((), problems))
    data = tarkit.open(inputs, skip=skip, allow=allow, on_problem=said.append)
    words, known, error = "", None, ""
    try:
        words, data = chain(draw, data)
        how, known = output(draw, data, place)
        words += f" -> {how}"
    except (TarkitError, ValueError) as failed:
        error = f"{type(failed).__name__} {failed} {getattr(failed, 'hint', '')}"
    files = {path.name: path.read_bytes() for path in sorted(place.iterdir())}
    for path in place.iterdir():
        path.unlink()
    place.rmdir()
    return words, known, error, said, files


def one_by_one(patch: pytest.MonkeyPatch) -> None:
    """Let readers give single samples."""
    batches = DatasetReader.batches

    def single(self: DatasetReader) -> Iterator[SampleBatch]:
        return singly(batches(self))

    patch.setattr(DatasetReader, "batches", single)


@pytest.mark.parametrize("seeds", [range(15), slow(range(15, 150 * ROUNDS))])
def test_batches_are_as_single_samples(seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without the accelerator, of files and of streams."""
    failed = []
    for seed in seeds:
        draw = random.Random(seed)
        path = tmp_path / "in.tar"
        path.write_bytes(archive(draw, draw.choice((0, 0.02, 0.2))))
        inputs: Any = draw.choice((path, path, f"pipe:cat {path}"))
        results = []
        for pure in (True, False):
            for single in (True, False):
                with monkeypatch.context() as patch:
                    if pure:
                        patch.setattr(reader, "scan", None)
                        patch.setattr(fast, "gather", lambda *ranges: None)
                    if single:
                        one_by_one(patch)
                    results.append(result(seed, inputs, tmp_path))
        for other in results[1:]:
            if other != results[0]:
                failed.append(f"{seed}: {results[0]!r:.700}\n    {other!r:.700}")
                break
    assert not failed, f"{len(failed)} seeds\n" + "\n".join(failed[:5])


@pytest.mark.parametrize("seeds", [range(20), slow(range(20, 100 * ROUNDS))])
def test_parts_of_expressions(seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expressions of several parts, some of which no sample needs, or not all."""
    path = tmp_path / "in.tar"

    def chosen(text: str) -> tuple[Any, ...]:
        said, keys, error = list[str](), list[str](), ""
        try:
            data = tarkit.open(path, skip="all", on_problem=said.append)
            keys += [sample.key for sample in data.where(text)]
        except TarkitError as failed:
            error = str(failed)
        return keys, said, error

    for seed in seeds:
        draw = random.Random(seed)
        path.write_bytes(archive(draw, draw.choice((0, 0.02))))
        text = expression(draw)
        with monkeypatch.context() as patch:
            one_by_one(patch)
            expected = chosen(text)
        assert (seed, text, *chosen(text)) == (seed, text, *expected)


def compared(inputs: list[Any], others: list[Any] | None, by: str) -> tuple[Any, ...]:
    """Return all that a comparison of values says of the samples, and of their archives."""
    report = tarkit.check(inputs, leak=others, unique=others is None, by=by)
    return report.findings, report.shards


@pytest.mark.parametrize("seeds", [range(8), slow(range(8, 60 * ROUNDS))])
def test_compared_values(seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same samples with equal values are found in one set and in two, of files, streams and views."""
    for seed in seeds:
        draw, inputs = random.Random(seed), list[Any]()
        for number in range(draw.choice((1, 2, 2, 3))):
            path, view = tmp_path / f"{number}.tar", tmp_path / f"{number}.view.parquet"
            path.write_bytes(archive(draw, draw.choice((0, 0.02, 0.2))))
            with suppress(TarkitError):
                tarkit.open(path, skip="all", on_problem=lambda text: None).write(view)
            inputs.append(draw.choice((path, path, f"pipe:cat {path}", view)))
        others = [inputs.pop()] if len(inputs) > 1 and draw.random() < 0.7 else None
        by = draw.choice(("sha256.txt", "sha256.json", "cls", "json", "json.tags", "size.txt", "size", "__key__"))
        with monkeypatch.context() as patch:
            one_by_one(patch)
            expected = compared(inputs, others, by)
        for pure in (True, False):
            with monkeypatch.context() as patch:
                if pure:
                    patch.setattr(reader, "scan", None)
                patch.setattr(columns, "SMALL", draw.choice((100, 1000, columns.SMALL)))
                patch.setattr(columns, "TOGETHER", draw.choice((0, 10_000, columns.TOGETHER)))
                patch.setattr(multimap, "FEW", draw.choice((0, 3000, multimap.FEW)))
                patch.setattr(multimap, "HELD", draw.choice((1000, multimap.HELD)))
                assert (seed, by, *compared(inputs, others, by)) == (seed, by, *expected)
