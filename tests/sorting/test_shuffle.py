"""Random orders: exactly those of dSort, and stable keys."""

from __future__ import annotations

from collections import Counter
from hashlib import shake_128
from itertools import islice, permutations

import pytest

from tarkit.sorting.shuffle import KEY, Pcg, pcg_keys, pcg_order, random_keys
from tests._tools import each_row


def shuffled(items: str, seed: int, epoch: int = 0) -> str:
    """Return the words of `items` in the order of their keys."""
    words = items.split()
    keyed = sorted(zip(random_keys(seed, epoch), words, strict=False))
    return " ".join(word for _, word in keyed)


@each_row(
    ("seed", "items", "expected"),
    [
        (1010102, "abc def ghi klm", "klm abc def ghi"),  # dSort's own test; the others are by a port of it
        (0, "a b c d e f g h", "f e h d c g a b"),
        (1, "a b c d e f g h", "d a c f h g e b"),
        (42, "a b c d e f g h", "e d h a c f g b"),
        (124123, "a b c d e f g h", "b h f a e g d c"),
        (5, "", ""),
        (5, "a", "a"),
    ],
)
def test_dsort(seed: int, items: str, expected: str) -> None:
    """Orders equal the vectors of dSort's shuffle; order and keys agree."""
    words = items.split()
    assert " ".join(words[index] for index in pcg_order(len(words), seed)) == expected
    keyed = sorted(zip(pcg_keys(len(words), seed), words, strict=True))
    assert " ".join(word for _, word in keyed) == expected


def test_pcg() -> None:
    """The first numbers of NewPCG(1, 2) equal those in the test of Go's PCG-DXSM."""
    generator = Pcg(0)
    generator._state = 1 << 64 | 2
    assert [generator.next() for _ in range(3)] == [0xC4F5A58656EEF510, 0x9DCEC3AD077DEC6C, 0xC8D04605312F8088]


@each_row("bound", [1, 2, 3, 7, 8, 1000, 1 << 31, (1 << 32) - 1])
def test_pcg_below(bound: int) -> None:
    """Numbers are below the bound, and spread over its range."""
    generator = Pcg(9)
    drawn = [generator.below(bound) for _ in range(2000)]
    assert 0 <= min(drawn) <= max(drawn) < bound
    assert abs(sum(drawn) / 2000 - (bound - 1) / 2) < bound / 2**0.5 / 20


@each_row("bound", [3 << 30, (1 << 31) + 1, 5 << 29])
def test_pcg_draws_again(bound: int) -> None:
    """Draws are rejected so that each number has the same number of the 2**32 draws."""
    draws, generator = Pcg(9), Pcg(9)
    upper = [draws.next() >> 32 for _ in range(40)]
    expected = [each * bound >> 32 for each in upper if each * bound % (1 << 32) >= (1 << 32) % bound]
    assert len(expected) < 35
    assert [generator.below(bound) for _ in expected] == expected


@each_row("seed", [-1, 1 << 64])
def test_pcg_seeds(seed: int) -> None:
    """A seed has 64 bits."""
    with pytest.raises(ValueError, match=str(seed)):
        Pcg(seed)


@each_row(
    ("seed", "epoch", "expected"),
    [
        (0, 0, "g e f c a h b d"),
        (0, 1, "e b c d f g h a"),
        (7, 0, "f h b d g a e c"),
        (-7, 0, "a e h g b f c d"),
        (1 << 70, 0, "a f h d c g e b"),
    ],
)
def test_orders_are_stable(seed: int, epoch: int, expected: str) -> None:
    """Orders for a seed never change between versions."""
    assert shuffled("a b c d e f g h", seed, epoch) == expected


def test_keys_are_those_of_the_definition() -> None:
    """Keys are those that the documentation defines, so that another program can compute the order."""
    keys = list(islice(random_keys(7, 2), 2050))
    assert keys[1] == shake_128(b"tarkit shuffle 7 2 0").digest(32)[16:]
    assert keys[1024] == shake_128(b"tarkit shuffle 7 2 1").digest(16)
    assert keys[2049] == shake_128(b"tarkit shuffle 7 2 2").digest(32)[16:]
    assert {len(key) for key in keys} == {KEY}
    assert len(set(keys)) == 2050


def test_all_orders_are_equally_likely() -> None:
    """Chi-square over the 24 orders of four items and 1920 seeds: 23 degrees of freedom, 1 in 1000 is 49.7."""
    counts: Counter[str] = Counter(shuffled("a b c d", seed) for seed in range(1920))
    orders = ["".join(order) for order in permutations("abcd")]
    chi = sum((counts[" ".join(order)] - 80) ** 2 / 80 for order in orders)
    assert chi < 49.7
    assert chi > 7.5  # nor is the distribution too even


def test_positions_of_many() -> None:
    """Chi-square of the positions of twenty thousand items, in 50 by 50 cells: 49 * 49 degrees of freedom."""
    count, cells = 20_000, 50
    order = sorted(range(count), key=list(islice(random_keys(3), count)).__getitem__)
    counts = Counter((place * cells // count, item * cells // count) for place, item in enumerate(order))
    expected = count / cells**2
    chi = sum((counts[a, b] - expected) ** 2 / expected for a in range(cells) for b in range(cells))
    assert abs(chi - 49 * 49) < 4 * (2 * 49 * 49) ** 0.5


@each_row("start", [0, 1, 1023, 1024, 1025, 5000])
def test_keys_from_any_sample_on(start: int) -> None:
    """The key of a sample does not depend on where the keys begin."""
    assert [*islice(random_keys(7, 2, start), 3)] == [*islice(random_keys(7, 2), start, start + 3)]
