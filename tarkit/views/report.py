"""A report: sections with tables, whose cells are text, numbers and bars. `text`, `terminal` and `html` draw it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tarkit.errors import printable
from tarkit.inspecting.census import OTHERS, Census, Set, Share, Sizes


class Bar(NamedTuple):
    """A bar of this share of the whole width, from 0 to 1."""

    share: float


class Spark(NamedTuple):
    """A row of little bars, each of a share of the whole height."""

    shares: tuple[float, ...]


Cell = str | int | Bar | Spark


@dataclass
class Section:
    """A table under a title. Numbers stand at the right, all else at the left."""

    title: str
    heads: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    note: str = ""

    def numeric(self) -> set[int]:
        """The columns that hold numbers alone, with units perhaps."""
        columns = range(len(self.heads))
        return {place for place in columns if self.rows and all(_is_number(row[place]) for row in self.rows)}


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int) or (isinstance(cell, str) and _NUMBER.fullmatch(cell) is not None)


_NUMBER = re.compile(r"-|~?[0-9][0-9. ]*([kMGTPE]?B|%)?")
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def amount(size: float) -> str:
    """Bytes for eyes, three digits and a unit: 999 B, 1.50 kB, 12.3 MB."""
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            break
        size /= 1000
    if unit == "B":
        return f"{size:.0f} B"
    return f"{size:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f} {unit}"


def share(part: float, whole: float) -> str:
    """A part of the whole in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def number(value: int) -> str:
    """A number with blanks between its thousands."""
    return f"{value:,}".replace(",", " ")


# ---- What `stats` tells, as sections of a report and as an object for JSON

MOST_ROWS = 40  # of a table; JSON has all
DRAWN = 4  # fields that have a histogram of their own
HIGH_OVERHEAD = 0.25  # from which on a word about it is in place


def sections(total: Census, shards: Sequence[Census], shares: Sequence[Share]) -> list[Section]:
    """The report: what there is in all, fields, sets of fields, sizes, shards, shares."""
    found = [_summary(total, shards), _fields(total), _sets(total), *_histograms(total)]
    if len(shards) > 1:
        found.append(_spread(shards))
    if shares:
        found.append(_shares(shares))
    return found


def _summary(total: Census, shards: Sequence[Census]) -> Section:
    rows: list[Sequence[Cell]] = [
        ("samples", number(total.samples), ""),
        ("shards", number(len(shards)), ""),
        ("entries", number(total.entries), f"{number(total.strays)} without key" if total.strays else ""),
        ("bytes", amount(total.size), f"{number(total.size)} as tar"),
        ("content", amount(total.content), share(total.content, total.size)),
        ("headers", amount(total.headers), share(total.headers, total.size)),
        ("padding", amount(total.padding), share(total.padding, total.size)),
        ("end", amount(total.end), share(total.end, total.size)),
    ]
    if total.dropped:
        rows.append(("left out", number(total.dropped), "samples with problems"))
    note = ""
    if total.size and total.overhead > HIGH_OVERHEAD * total.size and total.samples:
        note = (
            f"{share(total.overhead, total.size)} is not content: each entry costs 512 bytes and fills up its last 512"
        )
    return Section("Summary", ("", "", ""), rows, note)


def _by_size(total: Census) -> list[tuple[bytes, Sizes]]:
    """Fields by their bytes, then by name; the rest together at the end."""
    return sorted(total.fields.items(), key=lambda item: (item[0] == OTHERS, -item[1].bytes, item[0]))


def _fields(total: Census) -> Section:
    rows: list[Sequence[Cell]] = []
    for name, sizes in _by_size(total)[:MOST_ROWS]:
        median = ("" if sizes.exact else "~") + amount(sizes.median)
        ends = (amount(sizes.least), median, amount(sizes.most))
        part = share(sizes.count, total.samples)
        rows.append((_name(name), sizes.count, part, amount(sizes.bytes), *ends, _spark(sizes)))
    heads = ("field", "count", "samples", "bytes", "least", "median", "most", "sizes")
    return Section("Fields", heads, rows, _more(len(total.fields)))


def _sets(total: Census) -> Section:
    rows: list[Sequence[Cell]] = []
    for names, count in _common(total)[:MOST_ROWS]:
        rows.append((" ".join(map(_name, names)), count, share(count, total.samples), Bar(count / total.samples)))
    return Section("Fields that go together", ("fields", "samples", "share", ""), rows, _more(len(total.sets)))


def _common(total: Census) -> list[tuple[Set, int]]:
    return sorted(total.sets.items(), key=lambda item: (item[0] == (OTHERS,), -item[1], item[0]))


def _more(count: int) -> str:
    return f"and {count - MOST_ROWS} more: --json has all" if count > MOST_ROWS else ""


def _name(name: bytes) -> str:
    if name == OTHERS:
        return "(others)"
    text = name.decode("utf-8", "surrogateescape")
    return f"'{printable(text)}'" if not text or " " in text else printable(text)


def _spark(sizes: Sizes) -> Spark:
    counts = [count for _, _, count in sizes.bins()]
    return Spark(tuple(count / max(counts) for count in counts))


def _histograms(total: Census) -> Iterator[Section]:
    for name, sizes in _by_size(total)[:DRAWN]:
        bins = sizes.bins()
        if len(bins) > 1:
            most = max(count for _, _, count in bins)
            rows: list[Sequence[Cell]] = [
                (amount(low), amount(high), count, Bar(count / most)) for low, high, count in bins
            ]
            yield Section(f"Sizes of {_name(name)}", ("from", "to", "count", ""), rows)


def _spread(shards: Sequence[Census]) -> Section:
    rows: list[Sequence[Cell]] = []
    for what in ("samples", "entries", "size", "content"):
        ordered = sorted(shards, key=lambda each: getattr(each, what))
        values = [getattr(each, what) for each in ordered]
        shown = [amount(value) if what in ("size", "content") else number(value) for value in values]
        middle = (len(values) - 1) // 2
        rows.append(
            ("bytes" if what == "size" else what, shown[0], shown[middle], shown[-1], ordered[0].name, ordered[-1].name)
        )
    heads = ("per shard", "least", "median", "most", "the least", "the most")
    even = len({each.samples for each in shards}) == 1
    return Section("Shards", heads, rows, "all have as many samples" if even else "")


def _shares(shares: Sequence[Share]) -> Section:
    rows: list[Sequence[Cell]] = []
    finest = [each for each in shares if each.worker is not None] or list(shares)
    most = max((each.samples for each in shares), default=0)
    for each in shares:
        who = f"node {each.node}" if each.worker is None else f"node {each.node} worker {each.worker}"
        rows.append((who, each.shards, each.samples, Bar(each.samples / most if most else 0)))
    low, high = min(each.samples for each in finest), max(each.samples for each in finest)
    empty = sum(each.shards == 0 for each in finest)
    note = f"from {number(low)} to {number(high)} samples each"
    if empty:
        note += f"; {empty} of {len(finest)} get no shard at all"
    return Section("Who gets what", ("", "shards", "samples", ""), rows, note)


def as_json(total: Census, shards: Sequence[Census], shares: Sequence[Share]) -> dict[str, Any]:
    """The same with nothing left out. Names that are no UTF-8 have surrogates, as Python writes them."""
    return {
        **_counts(total),
        "shards": [{"name": each.name, **_counts(each)} for each in shards],
        "fields": {_text(name): _sizes(sizes) for name, sizes in _by_size(total) if name != OTHERS},
        **({"other_fields": _sizes(total.fields[OTHERS])} if OTHERS in total.fields else {}),
        "sets": [
            {"fields": [_text(name) for name in names], "samples": count}
            for names, count in _common(total)
            if names != (OTHERS,)
        ],
        **({"other_sets": total.sets[(OTHERS,)]} if (OTHERS,) in total.sets else {}),
        **({"shares": [each._asdict() for each in shares]} if shares else {}),
    }


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _counts(census: Census) -> dict[str, int]:
    names = ("samples", "entries", "strays", "size", "content", "headers", "extensions", "padding", "end")
    return {"bytes" if name == "size" else name: getattr(census, name) for name in names}


def _sizes(sizes: Sizes) -> dict[str, Any]:
    return {
        "count": sizes.count,
        "bytes": sizes.bytes,
        "least": sizes.least,
        "median": sizes.median,
        "most": sizes.most,
        "exact": sizes.exact,
        "histogram": [{"from": low, "to": high, "count": count} for low, high, count in sizes.bins()],
    }
