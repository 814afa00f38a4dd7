"""Samples as one page of HTML that needs nothing else: pictures, style and script are in it, and no network is used.

All that comes from an archive is escaped, and a Content-Security-Policy lets no other script, style or address in: what
was not escaped by mistake would still do nothing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from pkgutil import get_data
from string import Template
from typing import NamedTuple

from tarkit.inspecting.item import Item, Seen
from tarkit.views import pictures
from tarkit.views.charts import Chart, charts
from tarkit.views.panels import indented
from tarkit.views.words import about_words, escaped, label_of, one_line, safe, shortened, size_words

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
