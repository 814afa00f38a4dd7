"""Pages of HTML that need nothing else: the gallery of `show` and the report of `stats`, in one style.

Pictures, sounds, style and script are in the page, and no network is used. All that comes from an archive is escaped,
and a Content-Security-Policy lets no other script, style or address in: what was not escaped by mistake would still do
nothing.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from html import escape
from pkgutil import get_data
from statistics import median
from string import Template
from typing import NamedTuple

from tarkit.samples.items import Item, SampleItems
from tarkit.samples.items_text import about_words, escaped, indented, label_of, one_line, safe, shortened, size_words
from tarkit.sizes import plural
from tarkit.views import pictures
from tarkit.views.arrays import sketch
from tarkit.views.census import round_bins
from tarkit.views.classes import class_order, value_rank
from tarkit.views.labels import CAPTION_FIELDS, Label, captions_of, class_values, is_class, labels_of
from tarkit.views.report import Bar, Cell, Section, Spark, number, range_words

SIDES = (720, 480, 320, 200)  # pixels of a picture: the first of these with which all have room
QUALITY = 80  # of the JPEG
AS_IS = 65_536  # bytes of a picture that is taken as it is when browsers know its format,
SMALL = 32_768  # without Pillow
PLAYED = 8 << 20  # bytes of a sound or video
ROOM = 8_000_000  # characters that all pictures may have, all
MEDIA_ROOM = 12_000_000  # sounds and videos, and
TEXT_ROOM = 1_000_000  # all texts, so that a page of pictures has less than 10 MB
SHORT = 60  # characters of a text that stands beside its field
CAPTION = 600  # of a caption
CAPTIONS = 3  # of a sample
CLASSES = 20  # bars of a class field; the rest is one
HUES = 10  # colours of classes
_PICTURES = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp"}
_SOUNDS = {
    "wav": "audio/wav", "flac": "audio/flac", "mp3": "audio/mpeg", "ogg": "audio/ogg", "opus": "audio/ogg",
    "m4a": "audio/mp4", "aac": "audio/aac",
}  # fmt: skip
_VIDEOS = {"mp4": "video/mp4", "m4v": "video/mp4", "webm": "video/webm", "mov": "video/quicktime"}


class Medium(NamedTuple):
    """A picture, sound or video of a sample: the element that shows it, its `data:` URL or why there is none."""

    item: Item
    element: str  # img, audio, video
    address: str
    why: str = ""  # there is no address
    note: str = ""  # words below it
    shrinks: bool = False  # whether it may be made smaller
    pixels: bool = False  # whether its pixels are to be seen


class _Class(NamedTuple):
    """A class on the page: its number, how many samples have it, and its colour, which classes of one field have."""

    number: int
    samples: int
    hue: str


class Chart(NamedTuple):
    """A histogram: its title, and for each bar a label, a count, and the class that a click selects."""

    title: str
    bars: list[tuple[str, int, _Class | None]]


class Gallery:
    """Gathers samples for a page. Pictures and sounds are taken in while their bytes can be read."""

    def __init__(self, class_names: Sequence[str] = ()) -> None:
        self.samples: list[SampleItems] = []
        self.left_out = 0  # pictures, sounds and videos for which there was no room
        self._names = class_names
        self._media: list[list[Medium]] = []
        self._labels: list[list[Label]] = []
        self._new: list[Medium] = []
        self._used = self._played = 0
        self._level = 0  # index of the side that pictures have
        self._drawing = pictures.available()

    def take(self, item: Item) -> None:
        """Add the picture, sound or video of an item, if it has one."""
        if pictures.is_picture(item):
            try:
                found = self._picture(item)
            except pictures.Undrawn as error:
                found = Medium(item, "img", "", str(error))
        elif item.kind in _SOUNDS or item.kind in _VIDEOS:
            found = self._played_item(item)
        elif (drawing := sketch(item)) is not None:
            address = _data(drawing.type, drawing.data)
            found = Medium(item, "img", address, note=drawing.range, pixels=drawing.type == "image/png")
        else:
            return
        if found.element == "img":
            found = self._fitted(found)
        self._new.append(found)

    def add(self, seen: SampleItems, by: tuple[str, str] | None = None) -> None:
        """Add a sample, whose pictures were taken in; `by` is the field that says its class, and the value there."""
        self.samples.append(seen)
        self._media.append(self._new)
        self._labels.append(labels_of(seen, self._names, by))
        self._new = []

    def page(self, title: str, summary: str) -> bytes:
        """Return the whole page."""
        texts = _Texts()
        count = len(self.samples)
        charts, labels = self._charts()
        classes = _numbered(labels)
        cards = (
            _card(at + 1, seen, self._media[at], sorted((classes[each], each) for each in labels[at]), texts)
            for at, seen in enumerate(self.samples)
        )
        page = _page(
            "gallery.html",
            title,
            _file("gallery.js"),
            summary=escape(safe(summary)),
            found=plural(count, "sample"),
            options=_options(classes),
            charts=_aside([_classed(chart, classes) for chart in charts] + size_charts(self.samples), count),
            cards="\n".join(cards),
            shape=self._shape(),
        )
        return page.encode("utf-8", "backslashreplace")

    def _picture(self, item: Item) -> Medium:
        known = item.kind in _PICTURES
        pixels = 0 < item.about.get("width", 0) <= 96
        small = known and item.size <= (AS_IS if self._drawing else SMALL)
        if item.payload is not None and small and (not self._drawing or pictures.looks_right_as_is(item)):
            data = item.payload.source.read(item.payload.start, item.payload.start + item.size)
            return Medium(item, "img", _data(_PICTURES[item.kind], data), shrinks=self._drawing, pixels=pixels)
        if not self._drawing:
            raise pictures.Undrawn("thumbnails need tarkit[images]")
        side = SIDES[self._level]
        image = pictures.thumbnail(item, side, side)
        address = _data("image/jpeg", pictures.encoded(image, "JPEG", QUALITY))
        return Medium(item, "img", address, shrinks=True, pixels=pixels)

    def _fitted(self, medium: Medium) -> Medium:
        """Count the room of a picture; when there is none left, make all smaller, and at last leave this one out."""
        self._used += len(medium.address)
        while self._used > ROOM and self._drawing and self._level + 1 < len(SIDES):
            self._level += 1
            self._media = [[self._smaller(each) for each in row] for row in self._media]
            self._new = [self._smaller(each) for each in self._new]
            medium = self._smaller(medium)
            images = [each for row in (*self._media, self._new) for each in row if each.element == "img"]
            self._used = sum(len(each.address) for each in images) + len(medium.address)
        if self._used > ROOM:
            self._used -= len(medium.address)
            self.left_out += 1
            return Medium(medium.item, "img", "", "the page is full")
        return medium

    def _smaller(self, medium: Medium) -> Medium:
        """Return a picture of the side that there is room for."""
        if not medium.shrinks or not medium.address:
            return medium
        data = pictures.smaller(b64decode(medium.address.partition(",")[2]), SIDES[self._level], QUALITY)
        address = _data("image/jpeg", data)
        return medium._replace(address=min(address, medium.address, key=len))

    def _played_item(self, item: Item) -> Medium:
        element, type_ = ("audio", _SOUNDS[item.kind]) if item.kind in _SOUNDS else ("video", _VIDEOS[item.kind])
        room = 4 * item.size // 3 + 40
        if item.size > PLAYED or item.payload is None:
            return Medium(item, element, "", f"larger than {PLAYED >> 20} MiB")
        if self._played + room > MEDIA_ROOM:
            self.left_out += 1
            return Medium(item, element, "", "the page is full")
        self._played += room
        start = item.payload.start
        return Medium(item, element, _data(type_, item.payload.source.read(start, start + item.size)))

    def _charts(self) -> tuple[list[Chart], list[list[Label]]]:
        """Return a histogram of each field whose values are classes, and the classes of each sample.

        Fields whose names say so have classes, and those whose values are repeated words.
        """
        found = [
            [pair for item in seen.items if item.field is not None
             for pair in class_values(escaped(item.field).lower(), item)]
            for seen in self.samples
        ]  # fmt: skip
        counts: dict[str, Counter[str]] = {}
        for row in self._labels:
            for label in row:
                counts.setdefault(label.field, Counter())[label.value] += 1
        named = set(counts)
        for pairs in found:
            for field, value in pairs:
                if field not in named:
                    counts.setdefault(field, Counter())[value] += 1
        classes = {field: each for field, each in counts.items() if is_class(each)}
        words = {
            field
            for field, each in classes.items()
            if field.rpartition(".")[2] not in CAPTION_FIELDS and not all(map(_is_plain_value, each))
        }
        labels = [
            [*row, *(Label(field, value, value) for field, value in pairs if field in words - named)]
            for row, pairs in zip(self._labels, found, strict=True)
        ]
        order = sorted(classes, key=lambda field: (field not in named, -counts[field].total()))
        charts = [Chart(field, [(*bar, None) for bar in class_bars(counts[field])]) for field in order]
        return self._with_names(charts, labels), labels

    def _with_names(self, charts: list[Chart], labels: list[list[Label]]) -> list[Chart]:
        names = {(each.field, each.value): each.name for row in labels for each in row}
        return [
            Chart(title, [(names.get((title, label), label), count, place) for label, count, place in bars])
            for title, bars in charts
        ]

    def _shape(self) -> str:
        sides = [
            each.item.about["width"] / each.item.about["height"]
            for row in self._media
            for each in row[:1]
            if each.address and each.item.about.get("width") and each.item.about.get("height")
        ]
        ratio = median(sides) if sides else 1.5
        return "tall" if ratio < 0.87 else "square" if ratio < 1.18 else "wide"


def _numbered(labels: list[list[Label]]) -> dict[Label, _Class]:
    """Return all classes: fields that most samples have first, of a field the most frequent class first."""
    counts = Counter(label for row in labels for label in row)
    totals: Counter[str] = Counter()
    for label, count in counts.items():
        totals[label.field] += count
    fields = sorted(totals, key=lambda field: -totals[field])
    order = sorted(counts, key=lambda label: (fields.index(label.field), -counts[label], value_rank(label.value)))
    colored = [label for label in order if label.field == fields[0]]
    hues = {label: f" hue{place % HUES}" for place, label in enumerate(colored)}
    return {label: _Class(index, counts[label], hues.get(label, "")) for index, label in enumerate(order)}


def _is_plain_value(value: str) -> bool:
    return value.isdecimal() or value in ("true", "false")


class _Texts:
    """Keeps the length of all texts together bounded: beyond it they are cut to SHORT."""

    def __init__(self) -> None:
        self._used = 0

    def fitting(self, text: str) -> str:
        """Return the text, or its beginning."""
        self._used += len(text)
        return text if self._used <= TEXT_ROOM or len(text) <= SHORT else text[:SHORT] + "\u2026"


def _page(template: str, title: str, script: str = "", **parts: str) -> str:
    """Return a page whose body is made from a template; no other script or style than its own is let in."""
    style = _file("page.css")
    allowed = f"style-src '{_hash(style)}'"
    if script:
        allowed = f"img-src data:; media-src data:; {allowed}; script-src '{_hash(script)}'"
    title = escape(safe(title))
    body = Template(_file(template)).substitute(parts, title=title, script=script)
    return Template(_file("page.html")).substitute(title=title, allowed=allowed, style=style, body=body)


def _file(name: str) -> str:
    data = get_data("tarkit.views", name)
    assert data is not None
    return data.decode()


def _hash(text: str) -> str:
    from hashlib import sha256

    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _data(type_: str, data: bytes) -> str:
    return f"data:{type_};base64,{b64encode(data).decode()}"


# ---- Histograms beside the samples


def size_charts(samples: Sequence[SampleItems]) -> list[Chart]:
    """Return a histogram of the sizes of each field, unless all have one size."""
    sizes: dict[str, Counter[int]] = {}
    for seen in samples:
        for item in seen.items:
            if item.field is not None:
                sizes.setdefault(escaped(item.field).lower(), Counter())[item.size] += 1
    return [
        Chart(f"size of {field}", [(range_words(low, high), count, None) for low, high, count in round_bins(counts)])
        for field, counts in sizes.items()
        if len(counts) > 1
    ]


def class_bars(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return the most frequent values, equal ones in their order by number or text, and the rest as one."""
    order = class_order(counts)
    bars, rest = order[:CLASSES], order[CLASSES:]
    return bars + [(f"{len(rest)} others", sum(count for _, count in rest))] if rest else bars


def _classed(chart: Chart, classes: dict[Label, _Class]) -> Chart:
    """Return a chart whose bars have the classes that they stand for."""
    known = {label.name: each for label, each in classes.items() if label.field == chart.title}
    return Chart(chart.title, [(label, count, known.get(label)) for label, count, _ in chart.bars])


def _options(classes: dict[Label, _Class]) -> str:
    groups: dict[str, str] = {}
    for label, each in classes.items():
        option = f'<option value="{each.number}">{escape(label.name)} ({number(each.samples)})</option>'
        groups[label.field] = groups.get(label.field, "") + option
    return "\n".join(f'<optgroup label="{escape(field)}">{rows}</optgroup>' for field, rows in groups.items())


def _aside(charts: Sequence[Chart], samples: int) -> str:
    if not charts:
        return ""
    title = f"Counts of these {number(samples)} samples" if samples > 1 else "Counts of this sample"
    rows = "\n".join(map(_chart, charts))
    inside = f"<details open><summary>{title}</summary>\n<div>{rows}</div></details>"
    return f'<aside id="charts" aria-label="Histograms">{inside}</aside>'


def _chart(chart: Chart) -> str:
    most = max(count for _, count, _ in chart.bars) or 1
    rows = []
    for label, count, each in chart.bars:
        words, hue = escape(label), ""
        if each is not None:
            words = f'<button type="button" class="pick" data-class="{each.number}">{words}</button>'
            hue = f' class="{each.hue.strip()}"' if each.hue else ""
        rows.append(f'<tr{hue}><th scope="row">{words}</th><td>{_bar(count / most)}</td><td>{number(count)}</td></tr>')
    return f'<table class="bars"><caption>{escape(chart.title)}</caption>\n' + "\n".join(rows) + "\n</table>"


def _bar(share: float) -> str:
    return f'<svg class="bar" aria-hidden="true"><rect width="{100 * share:.1f}%" height="100%"/></svg>'


# ---- A card for each sample


def _card(
    at: int, seen: SampleItems, media: Sequence[Medium], labels: Sequence[tuple[_Class, Label]], texts: _Texts
) -> str:
    name = escaped(seen.key) if seen.key is not None else "no sample"
    key = escape(name)
    figures = "".join(_figure(each, name, len(media) > 1) for each in media)
    captions = "".join(
        f'<p class="caption" dir="auto">{escape(_safe_lines(texts.fitting(_beginning(each.text))))}</p>\n'
        for each in captions_of(seen)[:CAPTIONS]
    )
    chips = "".join(
        f'<button type="button" class="chip{each.hue}" data-class="{each.number}" '
        f'title="{escape(label.field)} = {escape(label.value)}">{escape(label.name)}</button>'
        for each, label in labels
    )
    rows = "\n".join(map(_row, seen.items))
    long = "\n".join(_text(item, texts) for item in seen.items if _is_long(item))
    fields = ", ".join(f"{label_of(item)} {size_words(item.size)}" for item in seen.items)
    return (
        f'<article id="sample-{at}" data-key="{key}">\n'
        + (f'<div class="media n{min(len(media), 3)}">{figures}</div>\n' if figures else "")
        + f'<div class="words">\n{captions}'
        + (f'<p class="chips">{chips}</p>\n' if chips else "")
        + f"<h2>{key}</h2>\n</div>\n"
        f"<details><summary>{escape(shortened(fields, 2 * SHORT))}</summary>\n"
        f'<table class="fields">\n{rows}\n</table>\n{long}\n'
        f'<p class="where">{escape(safe(seen.archive))} at {seen.offset}</p>\n</details>\n</article>'
    )


def _figure(medium: Medium, key: str, several: bool) -> str:
    label = label_of(medium.item)
    words = " \u00b7 ".join(([label] if several else []) + ([medium.note] if medium.note else []))
    below = f"<figcaption>{escape(words)}</figcaption>" if words else ""
    alt, address = escape(f"{label} of {key}"), medium.address
    if not address:
        what = "" if several else f"{label}: "
        return f'<figure><div class="none">{escape(what + medium.why)}</div>{below}</figure>'
    if medium.element != "img":
        sound = medium.element == "audio"
        kind, load = (' class="sound"', "none") if sound else ("", "metadata")
        player = f'<{medium.element} controls preload="{load}" src="{address}" aria-label="{alt}"></{medium.element}>'
        return f"<figure{kind}>{player}{below}</figure>"
    pixels = ' class="pixels"' if medium.pixels else ""
    return (
        f'<figure><button type="button" class="open"><img{pixels} src="{address}" alt="{alt}" loading="lazy" '
        f'decoding="async"></button>{below}</figure>'
    )


def _beginning(text: str) -> str:
    return text if len(text) <= CAPTION else text[:CAPTION] + "\u2026"


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
    text = _safe_lines(texts.fitting(indented(item.text) if item.kind == "json" else item.text))
    more = "\n(only the beginning)" if item.cut else ""
    return f'<p class="name">{escape(label_of(item))}</p><pre tabindex="0" dir="auto">{escape(text)}{more}</pre>'


def _safe_lines(text: str) -> str:
    return "\n".join(safe(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n"))


# ---- A report


def report_page(title: str, summary: str, sections: Sequence[Section]) -> str:
    """Return a report as a page without a script."""
    return _page("report.html", title, summary=escape(safe(summary)), sections="\n".join(map(_section, sections)))


def _section(section: Section) -> str:
    title = f"<h2>{_escaped(section.title)}</h2>\n"
    note = f"<p>{_escaped(section.note)}</p>\n" if section.note else ""
    if not any(section.heads) and section.rows:
        tiles = "".join(
            f"<div><dt>{_escaped(str(row[0]))}</dt><dd>{_escaped(str(row[1]))}</dd>"
            f'<dd class="more">{_escaped(" ".join(map(str, row[2:])))}</dd></div>\n'
            for row in section.rows
        )
        return f'<section class="wide">\n{title}<dl class="tiles">\n{tiles}</dl>\n{note}</section>'
    right = section.numeric()
    heads = "".join(f"<th{_class(at in right)}>{_escaped(head)}</th>" for at, head in enumerate(section.heads))
    rows = "".join(
        f"<tr>{''.join(_cell(cell, at in right) for at, cell in enumerate(row))}</tr>\n" for row in section.rows
    )
    wide = ' class="wide"' if len(section.heads) > 4 else ""
    table = f'<table class="report">\n<tr>{heads}</tr>\n{rows}</table>'
    return f'<section{wide}>\n{title}<div class="scroll" tabindex="0">{table}</div>\n{note}</section>'


def _class(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _cell(cell: Cell, is_number: bool) -> str:
    if isinstance(cell, Bar):
        hue = "" if cell.rank is None else f" hue{cell.rank % HUES}"
        return f'<td class="long{hue}">{_bar(cell.share)}</td>'
    if isinstance(cell, Spark):
        step = 100 / max(len(cell.shares), 1)
        bars = "".join(
            f'<rect x="{step * place:.2f}" y="{20 - 20 * each:.1f}" width="{0.8 * step:.2f}" height="{20 * each:.1f}"/>'
            for place, each in enumerate(cell.shares)
        )
        return (
            '<td class="long"><svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">'
            f"{bars}</svg></td>"
        )
    return f"<td{_class(is_number)}>{_escaped(number(cell) if isinstance(cell, int) else cell)}</td>"


def _escaped(text: str) -> str:
    return escape(safe(text))
