"""Pages of HTML that need nothing else: the gallery of `show` and the report of `stats`, in one style.

Pictures, sounds, style and script are in the page, and no network is used.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from statistics import median

from tarkit.display import pictures
from tarkit.display.arrays import sketch
from tarkit.display.cards import (
    SHORT,
    Chart,
    Medium,
    PageClass,
    aside,
    bar,
    card,
    class_bars,
    class_options,
    size_charts,
)
from tarkit.display.classes import value_rank
from tarkit.display.labels import CAPTION_FIELDS, Label, class_values, is_class, labels_of
from tarkit.display.markup import page, part
from tarkit.display.report import Bar, Cell, Section, Spark, number
from tarkit.samples.items import Item, SampleItems
from tarkit.samples.items_text import escaped, safe
from tarkit.sizes import plural

SIDES = (720, 480, 320, 200)  # pixels of a picture: the first of these with which all have room
QUALITY = 80  # of the JPEG
AS_IS = 65_536  # bytes of a picture that is embedded unchanged when browsers support its format,
SMALL = 32_768  # without Pillow
PLAYED = 8 << 20  # bytes of a sound or video
ROOM = 8_000_000  # characters that all pictures may have, all
MEDIA_ROOM = 12_000_000  # sounds and videos, and
TEXT_ROOM = 1_000_000  # all texts, so that a page of pictures has less than 10 MB
HUES = 10  # colours of classes
_PICTURES = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp"}
_SOUNDS = {
    "wav": "audio/wav", "flac": "audio/flac", "mp3": "audio/mpeg", "ogg": "audio/ogg", "opus": "audio/ogg",
    "m4a": "audio/mp4", "aac": "audio/aac",
}  # fmt: skip
_VIDEOS = {"mp4": "video/mp4", "m4v": "video/mp4", "webm": "video/webm", "mov": "video/quicktime"}


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
                medium = self._picture(item)
            except pictures.Undrawn as error:
                medium = Medium(item, "img", "", str(error))
        elif item.kind in _SOUNDS or item.kind in _VIDEOS:
            medium = self._played_item(item)
        elif (drawing := sketch(item)) is not None:
            address = _data(drawing.type, drawing.data)
            medium = Medium(item, "img", address, note=drawing.range, pixels=drawing.type == "image/png")
        else:
            return
        if medium.element == "img":
            medium = self._fitted(medium)
        self._new.append(medium)

    def add(self, seen: SampleItems, by: tuple[str, str] | None = None) -> None:
        """Add a sample, whose pictures were taken in; `by` is the field that says its class, and the value there."""
        self.samples.append(seen)
        self._media.append(self._new)
        self._labels.append(labels_of(seen, self._names, by))
        self._new = []

    def page(self, title: str, summary: str) -> bytes:
        """Return the whole page."""
        fit = _Texts().fitting
        charts, labels, classes = self._classes()
        rows = enumerate(zip(self.samples, self._media, labels, strict=True), 1)
        text = page(
            "gallery.html",
            safe(title),
            safe(summary),
            "gallery.js",
            found=plural(len(self.samples), "sample"),
            options=class_options(classes),
            charts=aside(charts + size_charts(self.samples), len(self.samples)),
            cards="\n".join([card(place, *parts, fit) for place, parts in rows]),
            shape=self._shape(),
        )
        return text.encode("utf-8", "backslashreplace")

    def _picture(self, item: Item) -> Medium:
        is_picture = item.kind in _PICTURES
        pixels = 0 < item.about.get("width", 0) <= 96
        small = is_picture and item.size <= (AS_IS if self._drawing else SMALL)
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
        """Count the bytes of a picture; over the limit, make all smaller, and at last leave this one out."""
        self._used += len(medium.address)
        while self._used > ROOM and self._drawing and self._level + 1 < len(SIDES):
            self._level += 1
            self._media = [[self._smaller(medium) for medium in row] for row in self._media]
            self._new = [self._smaller(medium) for medium in self._new]
            medium = self._smaller(medium)
            images = [image for row in (*self._media, self._new) for image in row if image.element == "img"]
            self._used = sum(len(image.address) for image in images) + len(medium.address)
        if self._used > ROOM:
            self._used -= len(medium.address)
            self.left_out += 1
            return Medium(medium.item, "img", "", "the page is full")
        return medium

    def _smaller(self, medium: Medium) -> Medium:
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

    def _classes(self) -> tuple[list[Chart], list[list[tuple[PageClass, Label]]], dict[Label, PageClass]]:
        """Return a histogram of each field whose values are classes, the classes of each sample, and all classes.

        Fields whose names say so have classes, and those whose values are repeated words.
        """
        values = [
            [pair for item in seen.items if item.field is not None
             for pair in class_values(escaped(item.field).lower(), item)]
            for seen in self.samples
        ]  # fmt: skip
        counts: dict[str, Counter[str]] = {}
        for label in chain.from_iterable(self._labels):
            counts.setdefault(label.field, Counter())[label.value] += 1
        named = set(counts)
        for field, value in chain.from_iterable(values):
            if field not in named:
                counts.setdefault(field, Counter())[value] += 1
        fields = [field for field, counter in counts.items() if is_class(counter)]
        words = {
            field
            for field in fields
            if field not in named
            and field.rpartition(".")[2] not in CAPTION_FIELDS
            and not all(value.isdecimal() or value in ("true", "false") for value in counts[field])
        }
        labels = [
            [*row, *(Label(field, value, value) for field, value in pairs if field in words)]
            for row, pairs in zip(self._labels, values, strict=True)
        ]
        classes = _numbered(labels)
        of_value = {(label.field, label.value): label for label in classes}
        charts = []
        for field in sorted(fields, key=lambda field: (field not in named, -counts[field].total())):
            bars: list[tuple[str, int, PageClass | None]] = []
            for value, count in class_bars(counts[field]):
                page_class = of_value.get((field, value))
                bars.append(
                    (value, count, None) if page_class is None else (page_class.name, count, classes[page_class])
                )
            charts.append(Chart(field, bars))
        return charts, [sorted((classes[label], label) for label in row) for row in labels], classes

    def _shape(self) -> str:
        sides = [
            medium.item.about["width"] / medium.item.about["height"]
            for row in self._media
            for medium in row[:1]
            if medium.address and medium.item.about.get("width") and medium.item.about.get("height")
        ]
        ratio = median(sides) if sides else 1.5
        return "tall" if ratio < 0.87 else "square" if ratio < 1.18 else "wide"


def _numbered(labels: list[list[Label]]) -> dict[Label, PageClass]:
    """Return all classes: fields that most samples have first, of a field the most frequent class first."""
    counts = Counter(label for row in labels for label in row)
    totals: Counter[str] = Counter()
    for label, count in counts.items():
        totals[label.field] += count
    fields = sorted(totals, key=lambda field: -totals[field])
    order = sorted(counts, key=lambda label: (fields.index(label.field), -counts[label], value_rank(label.value)))
    colored = [label for label in order if label.field == fields[0]]
    hues = {label: f" hue{place % HUES}" for place, label in enumerate(colored)}
    return {label: PageClass(index, counts[label], hues.get(label, "")) for index, label in enumerate(order)}


class _Texts:
    """Keeps the length of all texts together bounded: beyond it they are cut to SHORT."""

    def __init__(self) -> None:
        self._used = 0

    def fitting(self, text: str) -> str:
        self._used += len(text)
        return text if self._used <= TEXT_ROOM or len(text) <= SHORT else text[:SHORT] + "\u2026"


def _data(type_: str, data: bytes) -> str:
    return f"data:{type_};base64,{b64encode(data).decode()}"


# ---- A report


def report_page(title: str, summary: str, sections: Sequence[Section]) -> str:
    """Return a report as a page without a script."""
    return page("report.html", safe(title), safe(summary), sections="\n".join(map(_section, sections)))


def _section(section: Section) -> str:
    title = safe(section.title)
    note = part("note", text=safe(section.note)) if section.note else ""
    if not any(section.heads) and section.rows:
        tiles = "".join(
            part("tile", name=safe(str(name)), value=safe(str(value)), more=safe(" ".join(map(str, more))))
            for name, value, *more in section.rows
        )
        return part("tiles", title=title, tiles=tiles, note=note)
    right = section.numeric()
    kinds = [part("class", name="n") if place in right else "" for place in range(len(section.heads))]
    heads = "".join(part("head", kind=kind, text=safe(head)) for kind, head in zip(kinds, section.heads, strict=True))
    rows = "".join(part("report-row", cells="".join(map(_cell, row, kinds))) for row in section.rows)
    wide = part("class", name="wide") if len(section.heads) > 4 else ""
    return part("section", wide=wide, title=title, heads=heads, rows=rows, note=note)


def _cell(cell: Cell, kind: str) -> str:
    if isinstance(cell, Bar):
        return part("long", hue="" if cell.rank is None else f" hue{cell.rank % HUES}", bar=bar(cell.share))
    if isinstance(cell, Spark):
        step = 100 / max(len(cell.shares), 1)
        bars = "".join(
            part("spark-bar", x=f"{step * place:.2f}", y=f"{20 - 20 * share:.1f}", width=f"{0.8 * step:.2f}",
                 height=f"{20 * share:.1f}")
            for place, share in enumerate(cell.shares)
        )  # fmt: skip
        return part("long", hue="", bar=part("spark", bars=bars))
    return part("cell", kind=kind, text=safe(number(cell) if isinstance(cell, int) else cell))
