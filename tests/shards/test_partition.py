"""Parts by a stable hash, and classes dealt by shares: shards/partition.py."""

from __future__ import annotations

import random
from fractions import Fraction
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import TarkitError
from tarkit.shards import partition as strata
from tarkit.shards.partition import ByClass, ByHash, Part, parse_parts
from tests._tools import each_row

# seed, key, the first eight bytes of SHA-256(SEED NUL KEY); these must never change
# the part in train=0.9,val=0.1 and in five folds, without and with a seed; these must never change
GOLDEN = {
    "0": "0 0 4 0",
    "1": "0 1 0 4",
    "2": "1 0 4 2",
    "3": "0 0 2 3",
    "a/b": "0 0 0 0",
    "train/0001": "0 0 4 2",
    "train/0002": "0 0 1 2",
    "éa": "0 0 2 1",
    "patient-17": "0 0 2 0",
}


@each_row(("key", "expected"), GOLDEN.items())
def test_parts_of_keys(key: str, expected: str) -> None:
    """The parts have these golden vectors."""
    ways = [ByHash(parts, seed) for parts in (parse_parts("train=0.9,val=0.1"), parse_parts("5")) for seed in ("", "x")]
    assert " ".join(str(way.part_of(key.encode())) for way in ways) == expected


@each_row(
    ("text", "expected"),
    [
        ("train=0.9,val=0.1", {"train": Fraction(9, 10), "val": Fraction(1, 10)}),
        ("train,val=0.1", {"train": Fraction(9, 10), "val": Fraction(1, 10)}),
        (" a = 1/3 , b=1/3,c ", {"a": Fraction(1, 3), "b": Fraction(1, 3), "c": Fraction(1, 3)}),
        ("a=.5,b=0.50", {"a": Fraction(1, 2), "b": Fraction(1, 2)}),
        ("a=0.1,b=0.2,c=0.7", {"a": Fraction(1, 10), "b": Fraction(1, 5), "c": Fraction(7, 10)}),  # exact
        ("train,val=10%", {"train": Fraction(9, 10), "val": Fraction(1, 10)}),
        ("a=99.5%,b=.5 %", {"a": Fraction(199, 200), "b": Fraction(1, 200)}),
        ("all=1", {"all": Fraction(1)}),
        ("only", {"only": Fraction(1)}),
        ("A_b-c.1=1.", {"A_b-c.1": Fraction(1)}),
    ],
)
def test_shares(text: str, expected: dict[str, Fraction]) -> None:
    assert dict(parse_parts(text)) == expected


@settings(max_examples=20)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.binary())
def test_the_hash_determines_the_part(weights: list[int], key: bytes) -> None:
    """The part is the one whose interval contains the hash, with the lower bound included."""
    parts = [Part(str(number), Fraction(weight, sum(weights))) for number, weight in enumerate(weights)]
    number = ByHash(parts, "s").part_of(key)
    u = int(sha256(b"s\0" + key).hexdigest()[:16], 16)
    before = sum(weights[:number])
    assert before * 2**64 // sum(weights) <= u < (before + weights[number]) * 2**64 // sum(weights)


# ---- classes


def dealt(parts: list[Part], labels: list[bytes]) -> ByClass:
    """Return a dealer that dealt these labels; at any time each class is near its shares: within one for two parts."""
    dealer = ByClass(parts, lambda sample: None)
    for label in labels:
        dealer.deal(label)
        counts = dealer.counts[label]
        total = sum(counts)
        for part, count in zip(parts, counts, strict=True):
            assert total * part.share - (1 if len(parts) == 2 else 2) < count < total * part.share + 1
    return dealer


@settings(max_examples=20)
@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=6),
    st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=80),
)
def test_classes_have_their_shares(weights: list[int], labels: list[bytes]) -> None:
    """Each class has its shares, for any shares and order."""
    dealt([Part(str(number), Fraction(weight, sum(weights))) for number, weight in enumerate(weights)], labels)


@each_row("text", ["train=0.9,val=0.1", "a=0.8,b=0.1,c", "a=0.34,b=0.33,c", "a=0.123457,b=0.5,c"])
def test_the_total_has_its_shares(text: str) -> None:
    """Many small classes, each of which is rounded, have nearly the right total."""
    parts = parse_parts(text)
    labels = [b"%d" % (number % 150) for number in range(450)]
    random.Random(1).shuffle(labels)
    counts = [*dealt(parts, labels).counts.values()]
    for number, part in enumerate(parts):
        assert abs(sum(each[number] for each in counts) - 450 * part.share) <= 14


def test_dealing_depends_on_the_past_only() -> None:
    """A label is dealt by what came before it only."""
    labels = [b"%d" % (number * number % 11) for number in range(200)]
    longer, shorter = ByClass(parse_parts("3"), lambda sample: None), ByClass(parse_parts("3"), lambda sample: None)
    assert [longer.deal(label) for label in labels][:80] == [shorter.deal(label) for label in labels[:80]]


def test_too_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "CLASSES", 3)
    with pytest.raises(TarkitError, match="stratify: over 3 classes"):
        dealt(parse_parts("2"), [b"a", b"b", b"c", b"a", b"d"])
