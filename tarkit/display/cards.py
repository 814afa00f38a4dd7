"""A sample as a card of a page: its pictures and sounds, captions, classes, and the rest folded; histograms beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from html import escape
from typing import NamedTuple

from tarkit.display.census import round_bins
from tarkit.display.classes import class_order
from tarkit.display.labels import Label, captions_of
from tarkit.display.markup import part
from tarkit.display.report import number, range_words
from tarkit.samples.items import Item, SampleItems
from tarkit.samples.items_text import about_words, escaped, indented, label_of, one_line, safe, shortened
from tarkit.sizes import plural, size_words

SHORT = 60  # characters of a text that stands beside its field
CAPTION = 600  # of a caption
CAPTIONS = 3  # of a sample
CLASSES = 20  # bars of a class field; the rest is one

Fit = Callable[[str], str]
"""Returns a text, or its beginning if the page has no room for all of it."""


class Medium(NamedTuple):
    """A picture, sound or video of a sample: the element that shows it, its `data:` URL or why there is none."""

    item: Item
    element: str  # img, audio, video
    address: str
    why: str = ""  # there is no address
    note: str = ""  # words below it
    shrinks: bool = False  # whether it may be made smaller
    pixels: bool = False  # whether its pixels are to be seen


class PageClass(NamedTuple):
    """A class on the page: its number, its count of samples, and, for classes of a single field, its colour."""

    number: int
    samples: int
    hue: str


class Chart(NamedTuple):
    """A histogram: its title, and for each bar a label, a count, and the class that a click selects."""

    title: str
    bars: list[tuple[str, int, PageClass | None]]


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
    return bars + [(plural(len(rest), "other"), sum(count for _, count in rest))] if rest else bars


def class_options(classes: dict[Label, PageClass]) -> str:
    """Return the options of a menu of classes, by fields."""
    groups: dict[str, list[str]] = {}
    for label, place in classes.items():
        option = part("option", number=place.number, name=label.name, samples=number(place.samples))
        groups.setdefault(label.field, []).append(option)
    return "\n".join(part("options", field=field, options="".join(rows)) for field, rows in groups.items())


def aside(charts: Sequence[Chart], samples: int) -> str:
    """Return the histograms of so many samples."""
    if not charts:
        return ""
    title = f"Counts of these {number(samples)} samples" if samples > 1 else "Counts of this sample"
    return part("aside", title=title, charts="\n".join(map(_chart, charts)))


def _chart(chart: Chart) -> str:
    most = max(count for _, count, _ in chart.bars) or 1
    rows = []
    for label, count, place in chart.bars:
        words, hue = escape(label), ""
        if place is not None:
            words = part("pick", number=place.number, label=label)
            hue = part("class", name=place.hue.strip()) if place.hue else hue
        rows.append(part("bar-row", hue=hue, label=words, bar=bar(count / most), count=number(count)))
    return part("chart", title=chart.title, rows="\n".join(rows))


def bar(share: float) -> str:
    """Return a bar of a share of the width."""
    return part("bar", percent=f"{100 * share:.1f}")


# ---- A card


def card(
    place: int, seen: SampleItems, media: Sequence[Medium], labels: Sequence[tuple[PageClass, Label]], fit: Fit
) -> str:
    """Return the card of the sample with this number on the page."""
    key = escaped(seen.key) if seen.key is not None else "no sample"
    figures = "".join([_figure(medium, key, len(media) > 1) for medium in media])
    captions = [
        part("caption", text=_safe_lines(fit(_beginning(caption.text)))) for caption in captions_of(seen)[:CAPTIONS]
    ]
    fields = ", ".join([f"{label_of(item)} {size_words(item.size)}" for item in seen.items])
    return part(
        "card",
        number=place,
        key=key,
        media=part("media", count=min(len(media), 3), figures=figures) if figures else "",
        captions="".join(captions),
        chips=part("chips", chips="".join([_chip(*pair) for pair in labels])) if labels else "",
        fields=shortened(fields, 2 * SHORT),
        rows="\n".join(map(_row, seen.items)),
        texts="\n".join([_text(item, fit) for item in seen.items if _is_long(item)]),
        archive=safe(seen.archive),
        offset=seen.offset,
    )


@lru_cache(maxsize=1024)
def _chip(shown: PageClass, label: Label) -> str:
    return part("chip", hue=shown.hue, number=shown.number, field=label.field, value=label.value, name=label.name)


def _figure(medium: Medium, key: str, several: bool) -> str:
    label = label_of(medium.item)
    words = " \u00b7 ".join(([label] if several else []) + ([medium.note] if medium.note else []))
    below = part("figcaption", words=words) if words else ""
    alt, address = f"{label} of {key}", medium.address
    if not address:
        return part("none", why=medium.why if several else f"{label}: {medium.why}", below=below)
    if medium.element == "img":
        pixels = ' class="pixels"' if medium.pixels else ""
        return part("picture", pixels=pixels, address=address, alt=alt, below=below)
    kind, load = (' class="sound"', "none") if medium.element == "audio" else ("", "metadata")
    return part("player", kind=kind, element=medium.element, load=load, address=address, alt=alt, below=below)


def _beginning(text: str) -> str:
    return text if len(text) <= CAPTION else text[:CAPTION] + "\u2026"


def _row(item: Item) -> str:
    about = part("warn", about=about_words(item)) if "named" in item.about else escape(about_words(item))
    if item.text is not None and not _is_long(item):
        text = escape(safe(one_line(item.text)))
        about = f"{text} ({about})" if about else text
    size = size_words(item.size)
    return part("row", label=label_of(item), bytes=item.size, size=size, kind=item.kind, says=about)


def _is_long(item: Item) -> bool:
    return item.text is not None and (item.cut or len(item.text) > SHORT)


def _text(item: Item, fit: Fit) -> str:
    assert item.text is not None
    text = _safe_lines(fit(indented(item.text) if item.kind == "json" else item.text))
    more = "\n(only the beginning)" if item.cut else ""
    return part("text", label=label_of(item), text=text + more)


def _safe_lines(text: str) -> str:
    return "\n".join(safe(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n"))
