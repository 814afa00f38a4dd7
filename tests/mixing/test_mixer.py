"""Drawing from several sources: mixing/mixer.py, and the specification of a mix: mixing/spec.py."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import TarkitError, Usage
from tarkit.mixing.mixer import Mix, Stock, Until, derived, locate
from tarkit.mixing.spec import MixSpec, SourceSpec, parse_mix, parse_source, read_spec
from tests._tools import each_row
from tests.commands.test_mix import drawn

# ---- arguments


@each_row(
    ("word", "expected"),
    [
        ("A.tar", ("A.tar", 1.0)),
        ("A.tar@1.45", ("A.tar", 1.45)),
        ("A.tar@2", ("A.tar", 2.0)),
        ("A.tar@.5", ("A.tar", 0.5)),
        ("A.tar@5.", ("A.tar", 5.0)),
        ("A.tar@1e-3", ("A.tar", 0.001)),
        ("A.tar@+2E2", ("A.tar", 200.0)),
        ("A-{000..099}.tar@1.45", ("A-{000..099}.tar", 1.45)),
        ("a@b/c.tar", ("a@b/c.tar", 1.0)),
        ("a@1/c.tar", ("a@1/c.tar", 1.0)),
        ("a@1@2", ("a@1", 2.0)),
        ("a@1@", ("a@1@", 1.0)),
        ("-@3", ("-", 3.0)),
        ("pipe:cat a.tar@2", ("pipe:cat a.tar", 2.0)),
        ("s3://user@host/x.tar", ("s3://user@host/x.tar", 1.0)),
        ("A.tar@inf", ("A.tar@inf", 1.0)),
        ("A.tar@1_0", ("A.tar@1_0", 1.0)),
        ("A.tar@٣", ("A.tar@٣", 1.0)),
        ("there@7", ("there@7", 1.0)),
        ("there@7@2", ("there@7", 2.0)),
        ("A.tar@0", "'A.tar@0': a weight is more than 0"),
        ("A.tar@-1", "'A.tar@-1': a weight is more than 0"),
        ("A.tar@1e999", "'A.tar@1e999': a weight is more than 0"),
        ("@2", "'@2': a weight without a source"),
    ],
)
def test_parse_source(word: str, expected: tuple[str, float] | str, here: Path) -> None:
    """A number after the last @ is the weight; an existing file takes precedence."""
    Path("there@7").touch()
    if isinstance(expected, str):
        with pytest.raises(Usage) as error:
            parse_source(word)
        assert str(error.value) == expected
    else:
        assert parse_source(word) == SourceSpec(expected[0], [expected[0]], expected[1])


# ---- files

TARMIX = """
shuffle: 1000
sources:
  - shards: "gs://bucket1/data-{000..999}.tar"
    weight: 1
    probability: 0.9
    shuffle: 10000
  - shards: "gs://bucket3/data-{000..100}.tar"
    weight: 1.7
    probability: 0.5
    nstreams: 10
    nrepeats: 5
    allow_missing: true
    rename:
      - from: page.jpg
        to: png
      - {from: xml, to: ""}
  - shards: [a.tar, b.tar]
    weight: 1e1
    name: c
    rekey: 'c/{key}'
    rename: {jpg: jpeg}
  - shards: [a.tar, b.tar, c.tar]
"""
ONE, THREE = "gs://bucket1/data-{000..999}.tar", "gs://bucket3/data-{000..100}.tar"
TARMIX_SOURCES = [
    SourceSpec(ONE, [ONE], 1.0, 0.9, shuffle=10000, any_order=True),
    SourceSpec(THREE, [THREE], 1.7, 0.5, 10, 5, allow_missing=True, rename=((b"page.jpg", b"png"), (b"xml", b""))),
    SourceSpec("c", ["a.tar", "b.tar"], 10.0, rekey="c/{key}", rename=((b"jpg", b"jpeg"),)),
    SourceSpec("a.tar and 2 more", ["a.tar", "b.tar", "c.tar"]),
]


def test_tarmix(here: Path) -> None:
    """A specification may use everything in tarmix's format, in YAML or JSON; the example in its help is one."""
    yaml = pytest.importorskip("yaml")
    for name, text in (("mix.yaml", TARMIX), ("mix.json", json.dumps(yaml.safe_load(TARMIX)))):
        Path(name).write_text(text)
        assert parse_mix([name]) == MixSpec(TARMIX_SOURCES, 1000, name)


def test_datasets(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """webdataset's format: prefix + bucket/shard, names, ~ and variables; without weights the shards count."""
    monkeypatch.setenv("ROOT_OF_IT", "data")
    monkeypatch.setenv("HOME", "/home/me")
    text = """
prefix: s3://
buckets: [b0]
datasets:
  - {shards: "a-{0..3}.tar", choose: 2}
  - {shards: [b.tar], resample: 3, buckets: b1, weight: 2, shuffle: 9}
  - {shards: $ROOT_OF_IT/c.tar, buckets: [b2], name: see}
"""
    Path("mix.yml").write_text(text)
    assert read_spec("mix.yml").sources == [
        SourceSpec("s3://b0/a-{0..3}.tar", ["s3://b0/a-{0..3}.tar"], None, choose=2, any_order=True),
        SourceSpec("@b1", ["s3://b1/b.tar"], 2.0, resample=3, any_order=True, shuffle=9),
        SourceSpec("see", ["s3://b2/data/c.tar"], None, any_order=True),
    ]
    Path("mix.yml").write_text("dataset:\n  - shards: ~/x.tar\n    scale: [1.0, 3.0]\n    extensions: nrm.jpg\n")
    warnings: list[str] = []
    assert read_spec("mix.yml", warnings.append).sources == [
        SourceSpec("/home/me/x.tar", ["/home/me/x.tar"], None, any_order=True)
    ]
    assert warnings == [
        "mix.yml: dataset[0]: unknown key 'scale'",
        "mix.yml: dataset[0]: unknown key 'extensions'",
    ]


@each_row(
    ("text", "message"),
    [
        ("", "not a mix, which is a mapping with a list of `sources`"),
        ("[a.tar]", "not a mix, which is a mapping with a list of `sources`"),
        ("shards: a.tar", "neither `sources` nor `datasets` in it"),
        ("sources: []", "`sources` is a list of at least one"),
        ("sources: {shards: a}", "`sources` is a list of at least one"),
        ("sources: [a.tar]", "sources[0]: not a mapping with `shards`"),
        ("sources: [{weight: 1}]", "sources[0]: `shards` is a name, or a list of names"),
        ("sources: [{shards: 7}]", "sources[0]: `shards` is a name, or a list of names"),
        ("sources: [{shards: [a, 7]}]", "sources[0]: `shards` is a name, or a list of names"),
        ("sources: [{shards: a}, {shards: a, wieght: 2}]", "sources[1]: unknown key 'wieght'; did you mean 'weight'?"),
        ("sources: [{shards: a, choose: 2}]", "sources[0]: unknown key 'choose'"),
        ("sources: [{shards: a, convert: {}}]", "sources[0]: unknown key 'convert'"),
        ("{sources: [{shards: a}], seed: 1}", "unknown key 'seed'"),
        ("sources: [{shards: a, weight: 0}]", "sources[0]: `weight` is more than 0"),
        ("sources: [{shards: a, weight: .inf}]", "sources[0]: `weight` is more than 0"),
        ("sources: [{shards: a, weight: .nan}]", "sources[0]: `weight` is more than 0"),
        ("sources: [{shards: a, weight: yes}]", "sources[0]: `weight` is a number"),
        ("sources: [{shards: a, weight: x}]", "sources[0]: `weight` is a number"),
        ("sources: [{shards: a, probability: 0}]", "sources[0]: `probability` is more than 0"),
        ("sources: [{shards: a, probability: 1.1}]", "sources[0]: a `probability` is at most 1"),
        ("sources: [{shards: a, nstreams: 0}]", "sources[0]: `nstreams` is a whole number from 1 on"),
        ("sources: [{shards: a, nrepeats: 1.5}]", "sources[0]: `nrepeats` is a whole number from 1 on"),
        ("sources: [{shards: a, shuffle: -1}]", "sources[0]: `shuffle` is a whole number from 0 on"),
        ("{sources: [{shards: a}], shuffle: yes}", "`shuffle` is a whole number from 0 on"),
        ("sources: [{shards: a, allow_missing: 1}]", "sources[0]: `allow_missing` is true or false"),
        ("sources: [{shards: a, name: ''}]", "sources[0]: `name` is text"),
        ("sources: [{shards: a, rekey: 7}]", "sources[0]: `rekey` is text"),
        ("sources: [{shards: a, rename: jpg}]", "sources[0]: `rename` is a mapping OLD: NEW, or a list of {from"),
        ("sources: [{shards: a, rename: [{jpg: png}]}]", "sources[0]: `rename` is a mapping OLD: NEW, or a list of"),
        ("sources: [{shards: a, rename: {jpg: d/png}}]", "sources[0]: `rename`: the name of a field is text without"),
        ("sources: [{shards: a, rename: {jpg: a, JPG: b}}]", "sources[0]: `rename`: one field gets two names"),
        ("datasets: [{shards: a, choose: 1, resample: 1}]", "datasets[0]: `choose` takes shards without replacement"),
        ("datasets: [{shards: a, buckets: [b, c]}]", "datasets[0]: more than one of `buckets`"),
        ("{datasets: [{shards: a}], prefix: 7}", "datasets[0]: `prefix` is text"),
        ("a: [", "mix.yaml:1: invalid YAML: "),
        ("sources:\n- shards: a\n  weight: 1\n  weight: 2\n", "mix.yaml:3: invalid YAML: 'weight' occurs twice"),
        ("sources: &s [{shards: a, rename: *s}]", "sources[0]: `rename` is a mapping OLD: NEW, or a list of"),
        ("a: 1\nb: !!python/object:os.system x\n", "mix.yaml:2: invalid YAML: could not determine a constructor"),
        ("\x00", "mix.yaml: invalid YAML: unacceptable character"),
    ],
)
def test_invalid_specifications(text: str, message: str, here: Path) -> None:
    """The error is one line with the position; unknown entries are errors, and no tag of YAML runs code."""
    Path("mix.yaml").write_text(text)
    with pytest.raises(TarkitError) as error:
        read_spec("mix.yaml")
    assert str(error.value).startswith(message if message.startswith("mix.yaml") else f"mix.yaml: {message}")
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read(here: Path) -> None:
    """A file that is not UTF-8, and invalid JSON are errors."""
    Path("b.yaml").write_bytes(b"a: \xff")
    Path("c.json").write_text("{")
    Path("d.json").write_text('{"sources": [{"shards": "a", "weight": 1, "weight": 2}]}')
    for path, message in (
        ("b.yaml", "b.yaml: at 3: not UTF-8"),
        ("c.json", "c.json: invalid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("d.json", "d.json: invalid JSON: 'weight' occurs twice"),
    ):
        with pytest.raises(TarkitError) as error:
            read_spec(path)
        assert str(error.value) == message


def test_yaml_is_an_extra(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PyYAML the error names the extra to install, and JSON as the alternative."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    Path("mix.yaml").write_text("sources: [{shards: a}]")
    with pytest.raises(TarkitError) as error:
        read_spec("mix.yaml")
    assert str(error.value) == "mix.yaml: reading YAML needs PyYAML, which is not installed"
    assert error.value.hint == "pip install 'tarkit[yaml]', or write JSON, in a file that ends in .json"


# ---- the draw


def stocks(sizes: list[int], weights: list[float]) -> list[Stock[str]]:
    """Return sources A, B, ... with the items A0, A1, ..."""

    def begin(name: str, size: int) -> Callable[[], Iterator[str]]:
        return lambda: (f"{name}{n}" for n in range(size))

    names = itertools.islice("ABCDEFGH", len(sizes))
    return [Stock(name, weight, begin(name, size)) for name, size, weight in zip(names, sizes, weights, strict=True)]


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from([0.1, 1, 1.45, 3])), min_size=1, max_size=6),
    st.integers(0, 1 << 32),
    st.sampled_from(["first", "all"]),
    st.none() | st.integers(0, 40),
)
def test_draws_equal_random_choices(
    sources: list[tuple[int, float]], seed: int, until: Until, total: int | None
) -> None:
    """The draws equal a simple model. Each source keeps its order."""
    sizes, weights = [size for size, _ in sources], [weight for _, weight in sources]
    items = [(weight, [f"{'ABCDEF'[at]}{n}" for n in range(size)]) for at, (size, weight) in enumerate(sources)]
    expected = drawn(seed, *items, until=until, total=total).split()
    mix = Mix(stocks(sizes, weights), seed, total=total, until=until)
    assert list(mix) == expected
    assert [stock.yielded for stock in mix.stocks] == [len({*own} & {*expected}) for _, own in items]
    if until == "all" and total is None:
        assert len(set(expected)) == sum(sizes)


def chi_square(counts: list[int], shares: list[float]) -> float:
    """Return the chi-square statistic of counts."""
    total = sum(counts)
    return sum((count - total * share) ** 2 / (total * share) for count, share in zip(counts, shares, strict=True))


@each_row(
    ("weights", "probabilities"),
    [([1, 1], [1, 1]), ([1.45, 1], [1, 1]), ([1, 10, 100], [1, 1, 1]), ([1, 2, 3], [1, 0.5, 0.25])],
)
def test_shares(weights: list[float], probabilities: list[float]) -> None:
    """Over twenty seeds the sum of the statistics is within the 99.9 % bounds of chi-square."""
    bound = {2: 45.3, 3: 73.4}[len(weights)]
    sum_of_all = 0.0
    for seed in range(20):
        sources = stocks([3] * len(weights), weights)
        for source, probability in zip(sources, probabilities, strict=True):
            source.probability = probability
        mix = Mix(sources, seed, total=1000, until="never", repeat=True)
        counts = Counter(item[0] for item in mix)
        assert [counts[source.name] for source in sources] == [source.yielded for source in sources]
        assert mix.got() == [source.yielded / 1000 for source in sources]
        sum_of_all += chi_square([source.yielded for source in sources], mix.asked())
    assert 0.1 * bound < sum_of_all < bound


def test_probability_does_not_change_the_draws() -> None:
    """A separate generator decides what is kept, so the draws are the same."""
    sources = stocks([50, 50], [1, 1])
    sources[1].probability = 0.3
    out = list(Mix(sources, 5, until="first"))
    whole = list(Mix(stocks([50, 50], [1, 1]), 5, until="first"))
    keep = random.Random(derived(5, "probability")).random
    assert out == [item for item in whole if item[0] == "A" or keep() < 0.3]
    assert 5 < sum(item[0] == "B" for item in out) < 30


def test_a_source_that_is_empty_when_it_begins_again() -> None:
    """It is an error; tests/commands/test_mix.py has sources that are empty from the start."""
    passes = iter([["x"], []])
    fickle = Stock("F", 1, lambda: iter(next(passes)))
    with pytest.raises(TarkitError, match=r"(?m)^F: no sample to draw when it began again$"):
        list(Mix([fickle], 1, until="never", total=3, repeat=True))


def test_seeds_of_parts() -> None:
    """Derived seeds are fixed in every version, and different."""
    assert derived(7, "order") == 9238645892645975328
    assert len({derived(seed, word, n) for seed in range(9) for word in ("a", "b") for n in range(9)}) == 162


# ---- the inputs of a source


def test_missing(here: Path) -> None:
    """allow_missing leaves out missing files and counts them; it is an error if all are missing."""
    for name in "abcd":
        Path(f"{name}.tar").touch()
    said: list[str] = []
    spec = SourceSpec("s", ["{a..f}.tar", "none.tar", "*.tar"], allow_missing=True)
    assert [location.text for location in locate(spec, said.append)] == [*(f"{name}.tar" for name in "abcd")] * 2
    assert said == ["s: 3 of 11 are missing, and left out"]
    spec.words = ["a.tar::none.tar::file:b.tar::file:{a,b}.tar"]
    assert [location.text for location in locate(spec, said.append)] == ["a.tar", "b.tar"]
    assert said[1:] == ["s: 2 of 4 are missing, and left out"]
    with pytest.raises(TarkitError, match=r"(?m)^s: none of its files exists$"):
        locate(SourceSpec("s", ["{x..z}.tar"], allow_missing=True), said.append)
    with pytest.raises(TarkitError, match=r"^e.tar: No such file or directory \(2 of the 6 names of"):
        locate(SourceSpec("s", ["{a..f}.tar"]), said.append)
