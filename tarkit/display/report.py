"""A report: sections with tables, whose cells are text, numbers and bars. `text`, `terminal` and `html` draw it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.display.census import OTHERS, Census, Set, Share, Sizes, mean_of
from tarkit.errors import printable
from tarkit.sizes import plural, scaled, size_words

if TYPE_CHECKING:
    from tarkit.display.classes import ClassCounts


class Bar(NamedTuple):
    """A bar of this share of the whole width, from 0 to 1; of a class with its rank, which chooses the colour."""

    share: float
    rank: int | None = None


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
        """Return the columns that hold nothing but numbers, with or without units."""
        columns = range(len(self.heads))
        return {place for place in columns if self.rows and all(_is_number(row[place]) for row in self.rows)}


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int) or (isinstance(cell, str) and _NUMBER.fullmatch(cell) is not None)


_NUMBER = re.compile(r"-|~?[0-9][0-9. ]*([kMGTPE]?B|%)?")


def range_words(low: int, high: int) -> str:
    """Return a range of sizes from its first and last byte count, as in `2 to 5 kB`; the end is not in it."""
    (first, one), (end, other) = _round_amount(low), _round_amount(high + 1)
    if low == high:
        return f"{first} {one}"
    return f"{first} to {end} {other}" if one == other or not low else f"{first} {one} to {end} {other}"


def _round_amount(size: int) -> tuple[str, str]:
    """Return bytes in a unit with no more digits than needed, and the unit: 500 B, 2 kB, 1.5 MB."""
    power = min((len(str(size)) - 1) // 3, 6)
    return f"{size / 1000**power:.15g}", scaled(1000**power)[1]


def share(part: float, whole: float) -> str:
    """Return a part of the whole in per cent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def number(value: float) -> str:
    """Return a number with blanks between its thousands."""
    return f"{value:,}".replace(",", " ")


# ---- The report of `stats`, as sections and as an object for JSON

MOST_ROWS = 40  # of a table; JSON has all
DRAWN = 4  # fields that have a histogram of their own
HIGH_OVERHEAD = 0.25  # share of the bytes from which a note explains it


@dataclass
class Balance:
    """How many samples have each value of a field, and the names of numbered classes."""

    field: str
    classes: ClassCounts
    names: Sequence[str] = ()


def sections(
    total: Census, shards: Sequence[Census], shares: Sequence[Share], balance: Balance | None = None
) -> list[Section]:
    """Return the report: totals, fields, classes, sets of fields, sizes, shards, shares."""
    report = [_summary(total, shards), _fields(total)]
    if balance is not None:
        report.append(_classes(balance))
    report += [_sets(total), *_histograms(total)]
    if len(shards) > 1:
        report.append(_spread(shards))
    if shares:
        report.append(_shares(shares))
    return report


def _summary(total: Census, shards: Sequence[Census]) -> Section:
    rows: list[Sequence[Cell]] = [
        ("samples", number(total.samples), ""),
        ("shards", number(len(shards)), ""),
        ("entries", number(total.entries), f"{number(total.strays)} without key" if total.strays else ""),
        ("bytes", size_words(total.size), f"{number(total.size)} as tar"),
        ("content", size_words(total.content), share(total.content, total.size)),
        ("headers", size_words(total.headers), share(total.headers, total.size)),
        ("padding", size_words(total.padding), share(total.padding, total.size)),
        ("end", size_words(total.end), share(total.end, total.size)),
    ]
    if total.dropped:
        rows.append(("skipped", number(total.dropped), "samples with problems"))
    note = ""
    if total.size and total.overhead > HIGH_OVERHEAD * total.size and total.samples:
        note = (
            f"{share(total.overhead, total.size)} is not content: each entry costs 512 bytes and fills up its last 512"
        )
    return Section("Summary", ("", "", ""), rows, note)


def _by_size(total: Census) -> list[tuple[bytes, Sizes]]:
    return sorted(total.fields.items(), key=lambda item: (item[0] == OTHERS, -item[1].bytes, item[0]))


def _fields(total: Census) -> Section:
    rows: list[Sequence[Cell]] = []
    for name, sizes in _by_size(total)[:MOST_ROWS]:
        median = ("" if sizes.exact else "~") + size_words(sizes.median)
        ends = (size_words(sizes.minimum), median, size_words(sizes.maximum))
        part = share(sizes.count, total.samples)
        rows.append((_name(name), sizes.count, part, size_words(sizes.bytes), *ends, _spark(sizes)))
    heads = ("field", "count", "samples", "bytes", "min", "median", "max", "sizes")
    return Section("Fields", heads, rows, _more(len(total.fields)))


def _sets(total: Census) -> Section:
    rows: list[Sequence[Cell]] = []
    for names, count in _common(total)[:MOST_ROWS]:
        rows.append((" ".join(map(_name, names)), count, share(count, total.samples), Bar(count / total.samples)))
    return Section("Sets of fields", ("fields", "samples", "share", ""), rows, _more(len(total.sets)))


def _common(total: Census) -> list[tuple[Set, int]]:
    return sorted(total.sets.items(), key=lambda item: (item[0] == (OTHERS,), -item[1], item[0]))


def _classes(balance: Balance) -> Section:
    from tarkit.display.classes import class_name, class_order

    classes = balance.classes
    order = class_order(classes.counts)
    total = classes.counts.total() + classes.missing + classes.others
    most = max((count for _, count in order), default=0) or 1
    rows: list[Sequence[Cell]] = []
    for rank, (value, count) in enumerate(order[:MOST_ROWS]):
        name = class_name(value, balance.names)
        rows.append(
            (
                printable(name if len(name) <= 60 else name[:59] + "\u2026"),
                count,
                share(count, total),
                Bar(count / most, rank),
            )
        )
    for word, count in (("(other values)", classes.others), ("(no value)", classes.missing)):
        if count:
            rows.append((word, count, share(count, total), Bar(min(count / most, 1.0))))
    note = _more(len(order))
    if len(order) > 1 and not note:
        ratio = order[0][1] / order[-1][1]
        words = f"the largest has {ratio:.3g} times as many as the smallest"
        note = f"{plural(len(order), 'class')}; {'equally many samples in each' if ratio == 1 else words}"
    return Section(f"Classes by {printable(balance.field)}", ("class", "samples", "share", ""), rows, note)


def _more(count: int) -> str:
    return f"and {count - MOST_ROWS} more: --json has all" if count > MOST_ROWS else ""


def _name(name: bytes) -> str:
    if name == OTHERS:
        return "(others)"
    text = name.decode("utf-8", "surrogateescape")
    return f"'{printable(text)}'" if not text or " " in text else printable(text)


def _spark(sizes: Sizes) -> Spark:
    counts = [count for _, _, count in sizes.bins()] if len(sizes.counts) > 1 else []
    return Spark(tuple(count / max(counts) for count in counts))


def _histograms(total: Census) -> Iterator[Section]:
    for name, sizes in _by_size(total)[:DRAWN]:
        bins = sizes.bins()
        if len(bins) > 1:
            most = max(count for _, _, count in bins)
            rows: list[Sequence[Cell]] = [
                (range_words(low, high), count, Bar(count / most)) for low, high, count in bins
            ]
            yield Section(f"Sizes of {_name(name)}", ("size", "count", ""), rows)


def _spread(shards: Sequence[Census]) -> Section:
    rows: list[Sequence[Cell]] = []
    for measure in ("samples", "entries", "size", "content"):
        ordered = sorted(shards, key=lambda shard: getattr(shard, measure))
        values = [getattr(shard, measure) for shard in ordered]
        three = (values[0], mean_of(values[(len(values) - 1) // 2], values[len(values) // 2]), values[-1])
        shown = map(size_words if measure in ("size", "content") else number, three)
        rows.append(("bytes" if measure == "size" else measure, *shown, ordered[0].name, ordered[-1].name))
    heads = ("per shard", "min", "median", "max", "shard with min", "shard with max")
    even = len({shard.samples for shard in shards}) == 1
    return Section("Shards", heads, rows, "all shards have the same number of samples" if even else "")


def _shares(shares: Sequence[Share]) -> Section:
    rows: list[Sequence[Cell]] = []
    finest = [row for row in shares if row.worker is not None] or list(shares)
    most = max((row.samples for row in shares), default=0)
    for row in shares:
        reader = f"node {row.node}" if row.worker is None else f"node {row.node} worker {row.worker}"
        rows.append((reader, row.shards, row.samples, Bar(row.samples / most if most else 0)))
    low, high = min(row.samples for row in finest), max(row.samples for row in finest)
    empty = sum(row.shards == 0 for row in finest)
    note = f"{plural(high, 'sample') if low == high else f'{number(low)} to {number(high)} samples'} each"
    if empty:
        note += f"; {empty} of {len(finest)} get no shard"
    return Section("Samples by node and worker", ("", "shards", "samples", ""), rows, note)


def as_json(
    total: Census, shards: Sequence[Census], shares: Sequence[Share], balance: Balance | None = None
) -> dict[str, Any]:
    """Return the full report as JSON values. Names that are not UTF-8 have surrogates, as Python writes them."""
    return {
        **_counts(total),
        "shards": [{"name": shard.name, **_counts(shard)} for shard in shards],
        "fields": {_text(name): _sizes(sizes) for name, sizes in _by_size(total) if name != OTHERS},
        **({"other_fields": _sizes(total.fields[OTHERS])} if OTHERS in total.fields else {}),
        "sets": [
            {"fields": [_text(name) for name in names], "samples": count}
            for names, count in _common(total)
            if names != (OTHERS,)
        ],
        **({"other_sets": total.sets[(OTHERS,)]} if (OTHERS,) in total.sets else {}),
        **({} if balance is None else {"by": _balance(balance)}),
        **({"shares": [row._asdict() for row in shares]} if shares else {}),
    }


def _balance(balance: Balance) -> dict[str, Any]:
    from tarkit.display.classes import class_name, class_order

    classes = []
    for value, count in class_order(balance.classes.counts):
        name = class_name(value, balance.names)
        classes.append({"value": value, **({"name": name} if name != value else {}), "samples": count})
    return {
        "field": balance.field,
        "classes": classes,
        "missing": balance.classes.missing,
        **({"others": balance.classes.others} if balance.classes.others else {}),
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
        "least": sizes.minimum,
        "median": sizes.median,
        "most": sizes.maximum,
        "exact": sizes.exact,
        "histogram": [{"from": low, "to": high, "count": count} for low, high, count in sizes.bins()],
    }
