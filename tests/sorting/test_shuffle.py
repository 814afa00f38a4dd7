"""Random orders: stable keys."""

from __future__ import annotations

from hashlib import shake_128
from itertools import islice

from tarkit.sorting.shuffle import KEY, random_keys
from tests._tools import each_row
from tests.commands.test_shuffle import by_seed


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
    assert by_seed("a b c d e f g h", seed, epoch) == expected


def test_keys_are_those_of_the_definition() -> None:
    """Keys are those that the documentation defines, so that another program can compute the order."""
    keys = list(islice(random_keys(7, 2), 2050))
    assert keys[1] == shake_128(b"tarkit shuffle 7 2 0").digest(32)[16:]
    assert keys[1024] == shake_128(b"tarkit shuffle 7 2 1").digest(16)
    assert keys[2049] == shake_128(b"tarkit shuffle 7 2 2").digest(32)[16:]
    assert {len(key) for key in keys} == {KEY}
    assert len(set(keys)) == 2050


@each_row("start", [0, 1, 1023, 1024, 1025, 5000])
def test_keys_from_any_sample_on(start: int) -> None:
    """The key of a sample does not depend on where the keys begin."""
    assert [*islice(random_keys(7, 2, start), 3)] == [*islice(random_keys(7, 2), start, start + 3)]
