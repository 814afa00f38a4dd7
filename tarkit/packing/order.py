"""The order of samples: by category, by directory, and by key or at random (`--sort`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tarkit.errors import Usage, show, spell
from tarkit.packing.batch import Group
from tarkit.packing.samples import is_sample, ranked
from tarkit.sizes import parse_count
from tarkit.sorting.shuffle import random_keys

_ORDER = re.compile(r"(-?)key|(?:alpha|alphanumeric)(?::(inc|dec))?|shuffle(?::([0-9]{1,19}))?")
_DOWN = bytes(255 - byte for byte in range(256))


class SampleOrder(NamedTuple):
    """An order of samples; `seed` is that of a shuffle, None for a random one."""

    by: Literal["none", "rising", "falling", "shuffle"] = "none"
    seed: int | None = None


def parse_order(text: str | None) -> SampleOrder:
    """Parse `key`, `-key` or `shuffle:SEED`, or ishard's `alpha:inc`, `alphanumeric:dec`. Raises Usage."""
    if text is None:
        return SampleOrder()
    match = _ORDER.fullmatch(text)
    seed = parse_count(match[3]) if match and match[3] else None
    if not match or (match[3] and seed is None):
        raise Usage(f"{spell('sort')} {show(text)}: not key, -key, shuffle or shuffle:SEED", "SEED is a number >= 0")
    if text.startswith("shuffle"):
        return SampleOrder("shuffle", seed)
    return SampleOrder("falling" if match[1] or match[2] == "dec" else "rising")


def in_order(groups: Iterator[Group], order: SampleOrder, by_directory: bool, tmpdir: str | None) -> Iterator[Group]:
    """Sort samples by category, by directory if that is requested, and by `order`; the sort is stable."""
    orders = order.by != "none" or by_directory
    ranks = random_keys(order.seed or 0) if order.by == "shuffle" else None

    def rank(group: Group) -> bytes:
        key = group[0]
        front = group[2].to_bytes(4, "big") + (directory_rank(key) if by_directory else b"")
        if not orders:
            return front
        if not is_sample(group[1]):
            return front + b"\0"  # first
        front += b"\1"
        if ranks is not None:
            return front + next(ranks)
        return front + (_falling(key) if order.by == "falling" else key if order.by == "rising" else b"")

    return ranked(((rank(group), group) for group in groups), tmpdir)


def directory_of(key: bytes) -> bytes:
    """Return the virtual directory of a key, empty for the root."""
    return key[: max(key.rfind(b"/"), 0)]


def directory_rank(key: bytes) -> bytes:
    """Return a rank that orders samples by directory: subdirectories by name, then the samples of the directory."""
    directory = directory_of(key)
    parts = directory.split(b"/") if directory else []
    return b"".join([b"\x01%b\0" % part for part in parts]) + b"\x02"


def _falling(key: bytes) -> bytes:
    """Return a rank that reverses the order of keys, which have no NUL byte."""
    return key.translate(_DOWN) + b"\xff"
