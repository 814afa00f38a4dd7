"""Samples as one page of HTML that needs nothing else: pictures, style and script are in it, and no network is used.

All that comes from an archive is escaped, and a Content-Security-Policy lets no other script, style or address in: what
was not escaped by mistake would still do nothing.
"""

from __future__ import annotations

import json
from base64 import b64encode
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pkgutil import get_data
from string import Template
from typing import NamedTuple

from tarkit.errors import printable
from tarkit.inspecting.item import Item, Seen
from tarkit.views import pictures
from tarkit.views.report import Bar, Cell, Section, Spark, number
from tarkit.views.text import about_words, escaped, indented, label_of, one_line, safe, shortened, size_words

# ---- Histograms: sizes of fields, and values of fields that name a class

CLASSES = 20  # bars of a class field; the rest is one
_EDGES = [first * 10**power for power in range(19) for first in (1, 2, 5)]
_VALUE = 40  # characters of a class


class Chart(NamedTuple):
    """A histogram: what it is about, and for each bar what it stands for and how many there are."""

    title: str
    bars: list[tuple[str, int]]


def charts(samples: Sequence[Seen]) -> list[Chart]:
    """A histogram of each field, or member of JSON, whose values are classes, then one of the sizes of each field."""
    sizes: dict[str, list[int]] = {}
    values: dict[str, Counter[str]] = {}
    for seen in samples:
        for item in seen.items:
            if item.field is not None:
                field = escaped(item.field).lower()
                sizes.setdefault(field, []).append(item.size)
                for name, value in _values(field, item):
                    values.setdefault(name, Counter())[value] += 1
    shown = [Chart(name, class_bars(counts)) for name, counts in values.items() if is_class(counts)]
    return shown + [Chart(f"size of {field}", size_bars(each)) for field, each in sizes.items()]


def size_bars(sizes: Sequence[int]) -> list[tuple[str, int]]:
    """How many sizes lie in each of the ranges 1 to 2, 2 to 5, 5 to 10 bytes and so on, up to the largest there is."""
    if min(sizes) == max(sizes):
        return [(size_words(sizes[0]), len(sizes))]
    counts = Counter(bisect_right(_EDGES, size) for size in sizes)
    return [(_range(place), counts[place]) for place in range(min(counts), max(counts) + 1)]


def _range(place: int) -> str:
    """The name of the range that ends before edge `place`."""
    return f"{size_words(_EDGES[place - 1])} to {size_words(_EDGES[place])}" if place else size_words(0)


def is_class(counts: Counter[str]) -> bool:
    """Whether values are classes: there are several, and they come back."""
    return len(counts) > 1 and 2 * len(counts) <= counts.total()


def class_bars(counts: Counter[str]) -> list[tuple[str, int]]:
    """The most frequent values, equal ones in their order by number or text, and the rest as one."""
    order = sorted(counts.items(), key=lambda pair: (-pair[1], _rank(pair[0])))
    bars, rest = order[:CLASSES], order[CLASSES:]
    return bars + [(f"{len(rest)} others", sum(count for _, count in rest))] if rest else bars


def _rank(value: str) -> tuple[float, str]:
    return (float(value), value) if value.isdecimal() and len(value) < 16 else (float("inf"), value)


def _values(field: str, item: Item) -> list[tuple[str, str]]:
    """What may be a class: a short text, or the plain members of a JSON object."""
    if item.text is None or item.cut:
        return []
    if item.kind != "json":
        value = one_line(item.text)
        return [(field, safe(value))] if 0 < len(value) <= _VALUE else []
    try:
        members = json.loads(item.text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(members, dict):
        return [(field, shortened(safe(item.text.strip()), _VALUE))] if isinstance(members, (int, str)) else []
    plain = {name: value for name, value in members.items() if isinstance(value, (bool, int, str))}
    return [
        (f"{field}.{safe(name)}", safe(text))
        for name, value in plain.items()
        if 0 < len(text := one_line(json.dumps(value) if isinstance(value, bool) else str(value))) <= _VALUE
    ]


THUMBNAIL = 240  # pixels
QUALITY, LOW = 72, 40  # of the JPEG of a thumbnail, of one that would have more than
SHARE = 12_000  # bytes
ROOM = 3_400_000  # characters that all pictures may have, and
TEXT_ROOM = 1_000_000  # all texts, so that a page of 200 samples has less than 5 MB
SHORT = 60  # characters of a text that stands beside its field
SMALL = 32_768  # bytes of a picture that is taken as it is, without Pillow
_TYPES = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp"}


class Picture(NamedTuple):
    """A picture of a sample: the item, and its address (a `data:` URL), or else why there is none."""

    item: Item
    address: str
    why: str


class Gallery:
    """Gathers samples for a page. Pictures are taken in while their bytes can be had."""

    def __init__(self) -> None:
        self.samples: list[Seen] = []
        self.left_out = 0  # pictures for which there was no room
        self._pictures: list[list[Picture]] = []
        self._new: list[Picture] = []
        self._used = 0
        self._drawing = pictures.available()

    def take(self, item: Item) -> None:
        """Take in the picture of an item, if it is one."""
        if not pictures.is_picture(item):
            return
        try:
            address = self._address(item)
        except pictures.Undrawn as error:
            self._new.append(Picture(item, "", str(error)))
            return
        if self._used + len(address) > ROOM:
            self.left_out += 1
            self._new.append(Picture(item, "", "the page is full"))
            return
        self._used += len(address)
        self._new.append(Picture(item, address, ""))

    def add(self, seen: Seen) -> None:
        """Add a sample, whose pictures were taken in."""
        self.samples.append(seen)
        self._pictures.append(self._new)
        self._new = []

    def page(self, title: str, summary: str) -> bytes:
        """The whole page."""
        texts = _Texts()
        style, script = _file("page.css"), _file("page.js")
        count = len(self.samples)
        cards = (
            _card(number, seen, taken, texts)
            for number, (seen, taken) in enumerate(zip(self.samples, self._pictures, strict=True), 1)
        )
        page = Template(_file("page.html")).substitute(
            title=escape(safe(title)),
            summary=escape(safe(summary)),
            found=f"{count} sample" + "s" * (count != 1),
            charts=_charts(charts(self.samples)),
            cards="\n".join(cards),
            style=style,
            script=script,
            style_hash=_hash(style),
            script_hash=_hash(script),
        )
        return page.encode("utf-8", "backslashreplace")

    def _address(self, item: Item) -> str:
        if self._drawing:
            image = pictures.thumbnail(item, THUMBNAIL, THUMBNAIL)
            data = pictures.encoded(image, "JPEG", QUALITY)
            return _data("image/jpeg", data if len(data) <= SHARE else pictures.encoded(image, "JPEG", LOW))
        if item.kind not in _TYPES or item.size > SMALL or item.payload is None:
            raise pictures.Undrawn("thumbnails need tarkit[images]")
        return _data(_TYPES[item.kind], item.payload.read(0, item.size))


class _Texts:
    """Sees that all texts together have a bounded length: once there is no room, they are cut to SHORT."""

    def __init__(self) -> None:
        self._used = 0

    def fitting(self, text: str) -> str:
        """The text, or its beginning."""
        self._used += len(text)
        return text if self._used <= TEXT_ROOM or len(text) <= SHORT else text[:SHORT] + "\u2026"


def _file(name: str) -> str:
    data = get_data("tarkit.views", name)
    assert data is not None
    return data.decode()


def _hash(text: str) -> str:
    from hashlib import sha256

    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _data(type_: str, data: bytes) -> str:
    return f"data:{type_};base64,{b64encode(data).decode()}"


def _charts(all_: Sequence[Chart]) -> str:
    if not all_:
        return ""
    tables = "\n".join(map(_chart, all_))
    head = '<details class="charts" open>\n<summary>Histograms of these samples</summary>'
    return f'{head}\n<div tabindex="0" role="region" aria-label="Histograms">\n{tables}\n</div>\n</details>'


def _chart(chart: Chart) -> str:
    most = max(count for _, count in chart.bars) or 1
    rows = "\n".join(
        f'<tr><th scope="row">{escape(label)}</th><td><svg aria-hidden="true">'
        f'<rect width="{100 * count / most:.1f}%" height="10"/></svg></td><td>{count}</td></tr>'
        for label, count in chart.bars
    )
    return f'<table class="bars"><caption>{escape(chart.title)}</caption>\n{rows}\n</table>'


def _card(number: int, seen: Seen, taken: Iterable[Picture], texts: _Texts) -> str:
    name = escaped(seen.key) if seen.key is not None else "no sample"
    key = escape(name)
    figures = "".join(_figure(each, name) for each in taken)
    rows = "\n".join(_row(item) for item in seen.items)
    long = "\n".join(_text(item, texts) for item in seen.items if _is_long(item))
    return (
        f'<article id="sample-{number}" data-key="{key}">\n<h2>{key}</h2>\n'
        f'<p class="where">{escape(safe(seen.archive))} at {seen.offset}</p>\n'
        + (f'<div class="pictures">{figures}</div>\n' if figures else "")
        + f'<table class="fields">\n{rows}\n</table>\n{long}\n</article>'
    )


def _figure(picture: Picture, key: str) -> str:
    label = escape(label_of(picture.item))
    alt = escape(f"{label_of(picture.item)} of {key}")
    if not picture.address:
        return f'<figure><div class="none">{escape(picture.why)}</div><figcaption>{label}</figcaption></figure>'
    return (
        f'<figure><img src="{picture.address}" alt="{alt}" loading="lazy" decoding="async">'
        f"<figcaption>{label}</figcaption></figure>"
    )


def _row(item: Item) -> str:
    about = escape(about_words(item))
    if "named" in item.about:
        about = f'<span class="warn">{about}</span>'
    if item.text is not None and not _is_long(item):
        text = escape(safe(one_line(item.text)))
        about = f"{text} ({about})" if about else text
    return (
        f'<tr><th scope="row">{escape(label_of(item))}</th><td class="size" title="{item.size} bytes">'
        f'{size_words(item.size)}</td><td>{escape(item.kind)}</td><td class="says">{about}</td></tr>'
    )


def _is_long(item: Item) -> bool:
    return item.text is not None and (item.cut or len(item.text) > SHORT)


def _text(item: Item, texts: _Texts) -> str:
    assert item.text is not None
    text = texts.fitting(indented(item.text) if item.kind == "json" else item.text)
    lines = "\n".join(safe(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n"))
    more = "\n(only the beginning)" if item.cut else ""
    first = escape(shortened(safe(one_line(item.text[: 4 * SHORT])), SHORT))
    head = f"<summary><b>{escape(label_of(item))}</b> <span>{first}</span></summary>"
    return f'<details>{head}<pre tabindex="0">{escape(lines)}{more}</pre></details>'


# ---- A report as one self-contained HTML page: no script, nothing from the network, light and dark

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --paper: #fff; --line: #d5d9de; --soft: #667; --bar: #2a6fb0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --paper: #15181b; --line: #363c42; --soft: #9aa3ab; --bar: #6fb1ea; }
}
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 70rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; min-width: 5.5rem; }
th { color: var(--soft); font-weight: 500; } th.n, td.n { text-align: right; white-space: nowrap; min-width: 0;
  font-variant-numeric: tabular-nums; }
.bar { width: clamp(6rem, 25vw, 16rem); }
.bar i { display: block; height: .8rem; background: var(--bar); border-radius: 2px; }
svg { fill: var(--bar); vertical-align: middle; } p { color: var(--soft); margin: .3rem 0; }
"""


def page(title: str, sections: Sequence[Section]) -> str:
    """The page. All text is escaped."""
    body = "".join(map(_section, sections))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_safe(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{_safe(title)}</h1>\n{body}</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    right = section.numeric()
    heads = ""
    if any(section.heads):
        marked = (f"<th{_class(place in right)}>{_safe(head)}</th>" for place, head in enumerate(section.heads))
        heads = f"<tr>{''.join(marked)}</tr>\n"
    rows = "".join(
        f"<tr>{''.join(_cell(cell, place in right) for place, cell in enumerate(row))}</tr>\n" for row in section.rows
    )
    note = f"<p>{_safe(section.note)}</p>\n" if section.note else ""
    return f'<h2>{_safe(section.title)}</h2>\n<div class="wide"><table>\n{heads}{rows}</table></div>\n{note}'


def _class(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _cell(cell: Cell, is_number: bool) -> str:
    if isinstance(cell, Bar):
        return f'<td class="bar"><i style="width: {100 * cell.share:.2f}%"></i></td>'
    if isinstance(cell, Spark):
        bars = "".join(
            f'<rect x="{5 * place}" y="{20 - 20 * each:.1f}" width="4" height="{20 * each:.1f}"/>'
            for place, each in enumerate(cell.shares)
        )
        return f'<td><svg width="{5 * len(cell.shares)}" height="20" aria-hidden="true">{bars}</svg></td>'
    return f"<td{_class(is_number)}>{_safe(number(cell) if isinstance(cell, int) else cell)}</td>"


def _safe(text: str) -> str:
    return escape(printable(text))
