"""The page of `show --html`: its contents, that all data are escaped, and its behaviour in a browser."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tarkit.display import html as pages
from tarkit.display import pictures
from tarkit.display.cards import class_bars, size_charts
from tarkit.samples.items import Item, SampleItems, describe
from tests import _browser
from tests._tools import happens, payload_of, program

VOID = {"meta", "input", "img", "link", "br"}  # elements without an end
ATTACK = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;</pre></textarea>--><style>*{display:none}</style>"
)


class Tree(HTMLParser):
    """The elements of a page: the texts in each open tag; tags must be closed in order."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page.decode())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def text(self, *tags: str) -> list[str]:
        """Return the texts inside tags of these names."""
        return [text for tag, text in self.texts if tag in tags]

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of each tag of this name."""
        return [attributes for each, attributes in self.tags if each == tag]


def picture(field: bytes, kind: str, data: bytes) -> Item:
    """Return an item with a picture."""
    return Item(b"a." + field, field, len(data), kind, {}, payload=payload_of(data))


def text(name: str, content: str, kind: str = "text", cut: bool = False) -> Item:
    """Return an item with a text."""
    return Item(b"a." + name.encode(), name.encode(), len(content), kind, {}, content, cut)


def sample(key: bytes, *items: Item) -> SampleItems:
    """Return a sample of a shard, with these items."""
    return SampleItems(key, "x.tar", 0, [*items])


def page_of(
    *samples: SampleItems, title: str = "x.tar", summary: str = "All samples", names: Sequence[str] = ()
) -> bytes:
    """Return the page of some samples."""
    gallery = pages.Gallery(names)
    for seen in samples:
        for item in seen.items:
            gallery.take(item)
        gallery.add(seen)
    return gallery.page(title, summary)


ARRAY = Item(b"d/b.npy", b"npy", 80, "npy", {"dtype": "int8", "shape": [2]})
JSON = text("json", '{"label": "cat", "x": 1.50}', "json")
PAIR = [
    sample(b"d/a", text("cls", "1"), JSON, text("t", "w " * 50)),
    SampleItems(b"d/b", "x.tar", 1024, [text("cls", "1"), ARRAY]),
]


def test_page() -> None:
    """The page has a title, tools, and a card for each sample: caption, classes, key; the rest of it is folded."""
    tree = Tree(page_of(*PAIR))
    assert tree.text("title", "h1") == ["x.tar", "x.tar"]
    assert tree.text("h2") == ["d/a", "d/b"]
    assert [each["data-key"] for each in tree.attributes("article")] == ["d/a", "d/b"]
    assert tree.text("output") == ["2 samples"]
    assert tree.text("p") == [
        "All samples",
        ("w " * 50).strip(),
        "t",
        "x.tar at 0",
        "x.tar at 1024",
        "No sample matches.",
    ]
    assert [text for tag, text in tree.texts if tag == "button"][1:4] == ["1", "cat", "1"]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td class="size" title="(\d+) bytes">(.*?)</td><td>(.*?)</td>'
                      r'<td class="says">(.*?)</td></tr>', page_of(*PAIR).decode())  # fmt: skip
    assert rows == [
        ("cls", "1", "1 B", "text", "1"),
        ("json", "27", "27 B", "json", "{&quot;label&quot;: &quot;cat&quot;, &quot;x&quot;: 1.50}"),
        ("t", "100", "100 B", "text", ""),
        ("cls", "1", "1 B", "text", "1"),
        ("npy", "80", "80 B", "npy", "int8 [2]"),
    ]
    assert tree.text("pre") == [("w " * 50).strip()]
    assert tree.text("summary") == ["cls 1 B, json 27 B, t 100 B", "cls 1 B, npy 80 B"]


def test_accessibility() -> None:
    """The page is accessible: language, labels, headings, unique ids, and a link that skips the tools."""
    tree = Tree(page_of(*PAIR, sample(b"d/c", text("cls", "12"))))
    assert tree.attributes("html") == [{"lang": "en"}]
    assert [each["for"] for each in tree.attributes("label")] == ["search", "classes"]
    assert tree.attributes("a") == [{"class": "skip", "href": "#samples"}]
    assert [tag for tag, _ in tree.tags if re.fullmatch("h[1-6]", tag)] == ["h1", "h2", "h2", "h2"]
    assert all(each["aria-hidden"] == "true" for each in tree.attributes("svg"))
    assert {tag for tag, _ in tree.tags} >= {"header", "main", "section", "article", "aside", "caption", "dialog"}
    assert all(each["aria-label"] for each in tree.attributes("dialog") + tree.attributes("aside"))
    ids = [attributes["id"] for _, attributes in tree.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_nothing_is_external() -> None:
    """The page has no external address, and a policy that allows only its own style and script."""
    page = page_of(*PAIR)
    tree = Tree(page)
    [policy] = [each["content"] for each in tree.attributes("meta") if each.get("http-equiv")]
    hashes = []
    for tag in ("style", "script"):
        [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", page.decode(), re.S)
        hashes.append("sha256-" + base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode())
    assert policy == (
        f"default-src 'none'; img-src data:; media-src data:; style-src '{hashes[0]}'; script-src '{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not re.search(rb"https?:|//[a-z]|@import|url\(", page)
    assert not any(name.startswith("on") or name == "style" for _, attributes in tree.tags for name in attributes)


def test_hostile() -> None:
    """Keys, names, texts, JSON, archives and titles with tags are shown as text."""
    plain = Counter(tag for tag, _ in Tree(page_of(*[hostile(re.sub(r"\S", "x", ATTACK))] * 2, names=("x",))).tags)
    page = page_of(*[hostile(ATTACK)] * 2, title=ATTACK, summary=ATTACK, names=(ATTACK,))
    tree = Tree(page)
    assert Counter(tag for tag, _ in tree.tags) == plain
    assert b"<script>alert" not in page
    assert tree.attributes("article")[0]["data-key"] == ATTACK
    assert tree.text("h2") == [ATTACK] * 2
    assert tree.text("title") == [ATTACK]
    assert {name for _, attributes in tree.tags for name in attributes}.isdisjoint({"onerror", "onload"})
    [first, second, *_] = tree.text("pre")
    assert first.startswith(ATTACK)
    assert json.loads(second) == {ATTACK: ATTACK, "x": "y" * 50, "tags": [ATTACK[:30]]}
    assert sum(ATTACK in text for text in tree.text("figcaption", "th")) >= 2
    assert ATTACK[:30] in [text for tag, text in tree.texts if tag == "button"]
    assert first.startswith(tree.text("p")[1][:100])


def hostile(text_: str) -> SampleItems:
    """Return a sample with a text in each position."""
    name = text_.encode()
    items = [
        Item(name + b".t", b"t" + name, 1, "text", {}, (text_ + " ") * 2 + "y" * 50),
        Item(name, None, 1, text_, {"note": text_, "named": text_}),
        text("short", text_[:30]),
        Item(b"a.npz", b"npz", 1, "npz", {"arrays": [{"name": text_, "dtype": text_, "shape": [1]}]}),
        text("json", json.dumps({text_: text_, "x": "y" * 50, "tags": [text_[:30]]}), "json"),
        *[picture(name, "png", b"")] * 2,
    ]
    return SampleItems(name, text_, 0, items)


def test_control_characters() -> None:
    """Control characters are shown as escapes; line ends and tabs of texts are kept."""
    seen = sample(b"\x1b[2J\xff", text("t", "a\x1b[1m\u202e\tb\nc" + "d" * 80))
    tree = Tree(page_of(seen))
    assert tree.text("h2") == ["\\x1b[2J\\xff"]
    assert tree.text("pre") == ["a\\x1b[1m\\xe2\\x80\\xae  b\nc" + "d" * 80]
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", page_of(seen))


def test_texts_have_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of long texts are cut to their beginnings."""
    assert pages.ROOM + pages.TEXT_ROOM <= 9_000_000, "a page of pictures has less than 10 MB"
    monkeypatch.setattr(pages, "TEXT_ROOM", 50_000)
    page = page_of(*[sample(b"k", text("json", json.dumps({"a": "x" * 3000}), "json"))] * 100)
    assert len(page) < 150_000
    found = Tree(page).text("pre")
    assert len(found) == 100
    assert len(found[0]) > 3000
    assert found[-1].endswith("\u2026")


# ---- pictures


def test_thumbnails() -> None:
    """A large picture has a thumbnail, loaded when it comes into view; a damaged one has the reason instead."""
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    data = noise((1440, 720))
    damaged = picture(b"bad.png", "png", data[:60])
    huge = picture(b"huge.png", "png", data)
    huge.about = {"width": 100_000, "height": 100_000}
    page = page_of(sample(b"a", picture(b"png", "png", data), damaged, huge, text("t", "x")))
    tree = Tree(page)
    image, large = tree.attributes("img")
    assert (image["alt"], image["loading"], image["decoding"]) == ("png of a", "lazy", "async")
    assert (large["id"], large.get("src")) == ("large", None)
    with opened(image) as thumbnail:
        assert (thumbnail.format, thumbnail.size) == ("JPEG", (720, 360))
    assert tree.text("div")[:2] == ["it cannot be decoded", "too many pixels"]
    assert tree.text("figcaption") == ["png", "bad.png", "huge.png"]
    assert images


def noise(size: tuple[int, int]) -> bytes:
    """Return a large PNG."""
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    out = io.BytesIO()
    images.effect_noise(size, 90).save(out, "PNG")
    return out.getvalue()


def opened(image: dict[str, str | None]) -> Any:
    """Return the picture of an <img>."""
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    return images.open(io.BytesIO(base64.b64decode((image["src"] or "").partition(",")[2])))


def test_small_pictures_are_unchanged() -> None:
    """Small pictures are embedded unchanged, except 16-bit ones; those with few pixels are shown with sharp pixels."""
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    found = {}
    for mode, size in (("RGB", (50, 40)), ("RGBA", (300, 40)), ("I;16", (9, 9))):
        out = io.BytesIO()
        images.new(mode, size).save(out, "PNG")
        each = picture(b"png", "png", out.getvalue())
        each.about = {"width": size[0], "height": size[1]}
        [image, _] = Tree(page_of(sample(b"a", each))).attributes("img")
        same = base64.b64decode((image["src"] or "").partition(",")[2]) == out.getvalue()
        found[mode] = (same, image.get("class"))
    assert found == {"RGB": (True, "pixels"), "RGBA": (True, None), "I;16": (False, "pixels")}


@pytest.mark.slow
def test_pictures_shrink_before_any_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pictures have the same size, the largest with which they fit."""
    data = noise((800, 400))
    monkeypatch.setattr(pages, "ROOM", 400_000)
    sides = []
    for count in (1, 3, 12, 60):
        tree = Tree(page_of(*[sample(b"%d" % i, picture(b"png", "png", data)) for i in range(count)]))
        images = tree.attributes("img")[:-1]
        assert sum(len(image["src"] or "") for image in images) <= 400_000
        widths = {opened(image).width for image in images}
        assert len(widths) == 1
        sides.append((len(images), *widths))
    assert [side for _, side in sides] == sorted((side for _, side in sides), reverse=True)
    assert [count for count, _ in sides[:3]] == [1, 3, 12]
    assert sides[0][1] == 720
    assert sides[-1][1] == 200


def test_sounds_and_videos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sounds and videos are in the page, without autoplay; those that are too large are left out and counted."""
    items = [
        picture(b"wav", "wav", b"RIFF" + bytes(90)),
        picture(b"mp4", "mp4", b"ftyp"),
        picture(b"ogg", "ogg", bytes(9999)),
    ]
    monkeypatch.setattr(pages, "MEDIA_ROOM", 5000)
    page = page_of(sample(b"a", *items))
    tree = Tree(page)
    [audio], [video] = tree.attributes("audio"), tree.attributes("video")
    assert (audio["src"] or "").startswith("data:audio/wav;base64,UklGR")
    assert (audio["preload"], audio["aria-label"], "autoplay" in audio) == ("none", "wav of a", False)
    assert video["src"] == "data:video/mp4;base64,ZnR5cA=="
    assert tree.text("div")[0] == "the page is full"
    monkeypatch.setattr(pages, "PLAYED", 50)
    assert Tree(page_of(sample(b"a", *items[:1]))).text("div")[0] == "wav: larger than 0 MiB"


def test_arrays() -> None:
    """An array is a picture of its numbers, with their range."""
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2), }".ljust(117) + b"\n"
    data = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes((1, 2, 3, 9))
    payload = payload_of(data)
    each = describe(Item(b"a.npy", b"npy", len(data), "", payload=payload), payload)
    tree = Tree(page_of(sample(b"a", each)))
    assert (tree.attributes("img")[0]["class"], tree.text("figcaption")) == ("pixels", ["1 to 9"])
    assert (tree.attributes("img")[0]["src"] or "").startswith("data:image/png;base64,")


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pictures in formats of browsers are embedded unchanged, others have a note that names the extra."""
    monkeypatch.setattr(pictures, "available", lambda: False)
    small, large = picture(b"gif", "gif", b"GIF89a"), picture(b"png", "png", bytes(40_000))
    odd = picture(b"ppm", "netpbm", b"P5 1 1 1 1")
    tree = Tree(page_of(sample(b"a", small, large, odd)))
    assert [each["src"] for each in tree.attributes("img")[:-1]] == ["data:image/gif;base64,R0lGODlh"]
    assert tree.text("div")[:2] == ["thumbnails need tarkit[images]"] * 2


def test_pictures_have_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the page is full, further pictures are left out and counted."""
    monkeypatch.setattr(pictures, "available", lambda: False)
    gallery = pages.Gallery()
    for _ in range(300):
        item = picture(b"png", "png", bytes(30_000))
        gallery.take(item)
        gallery.add(sample(b"a", item))
    tree = Tree(gallery.page("x", ""))
    shown = len(tree.attributes("img")) - 1
    assert shown == pages.ROOM // len("data:image/png;base64," + "A" * 40_000)
    assert gallery.left_out == 300 - shown == tree.text("div").count("png: the page is full")
    assert len(gallery.page("x", "")) < 10_000_000


# ---- histograms


def bars(page: bytes) -> dict[str, list[tuple[str, str]]]:
    """Return the titles of histograms, with the label and the count of each bar."""
    found = {}
    for table in re.findall('<table class="bars">(.*?)</table>', page.decode(), re.S):
        title = re.findall("<caption>(.*?)</caption>", table)[0]
        rows = re.findall("<tr.*?</tr>", table)
        found[title] = [(re.findall(">([^<>]+)<", row)[0], re.findall("<td>([^<>]+)</td>", row)[0]) for row in rows]
    return found


def test_size_charts() -> None:
    """Sizes are counted in ranges with round bounds; a field with one size has no chart."""
    samples = [sample(b"k", Item(b"k.a", b"a", size, "text"), Item(b"k.b", b"b", 7, "text"))
               for size in (0, 4, 5, 999, 20_000)]  # fmt: skip
    [chart] = size_charts(samples)
    assert chart.title == "size of a"
    assert [(label, count) for label, count, _ in chart.bars if count] == [
        ("0 B", 1), ("2 to 5 B", 1), ("5 to 10 B", 1), ("500 B to 1 kB", 1), ("20 to 50 kB", 1)
    ]  # fmt: skip


def test_class_bars() -> None:
    """The most frequent class is first, equal counts in numeric order; classes beyond the limit share one bar."""
    assert class_bars(Counter(["2", "10", "10", "2", "1", "x", "x", "x"])) == [("x", 3), ("2", 2), ("10", 2), ("1", 1)]
    many = Counter({str(number): 100 - number for number in range(30)})
    assert class_bars(many)[-2:] == [("19", 81), ("10 others", sum(range(71, 81)))]


def test_charts() -> None:
    """Classes in fields and JSON members have charts, then sizes; repeated values are classes of samples."""
    other = Item(b"README", None, 5, "text", {}, "x")
    said = [{"split": "ab"[i % 2], "ok": i > 1, "n": i, "m": i % 2, "f": 1.5, "l": [1]} for i in range(4)]
    samples = [
        sample(b"k", text("cls", f"{i % 2}\n"), text("txt", f"text {i}"), text("json", json.dumps(each), "json"), other)
        for i, each in enumerate(said)
    ]
    page = page_of(*samples, names=("cat", "dog"))
    assert bars(page) == {
        "cls": [("cat", "2"), ("dog", "2")],
        "json.split": [("a", "2"), ("b", "2")],
        "json.ok": [("false", "2"), ("true", "2")],
        "json.m": [("0", "2"), ("1", "2")],
        "size of json": [("62 B", "2"), ("63 B", "2")],
    }
    assert re.findall('title="(.*?)">(.*?)</button>', page.decode()) == [
        ("cls = 0", "cat"), ("json.split = a", "a"), ("cls = 1", "dog"), ("json.split = b", "b"),
    ] * 2  # fmt: skip
    assert re.findall('<optgroup label="(.*?)">(.*?)</optgroup>', page.decode()) == [
        ("cls", '<option value="0">cat (2)</option><option value="1">dog (2)</option>'),
        ("json.split", '<option value="2">a (2)</option><option value="3">b (2)</option>'),
    ]
    assert bars(page_of()) == {}
    odd = [sample(b"a", text("json", each, "json")) for each in ("[1]", "7", '"' + "x" * 99 + '"', "{", "1e999")]
    assert list(bars(page_of(*odd))) == ["size of json"]


# ---- in a browser


VISIBLE = (
    "[...document.querySelectorAll('article')].filter((card) => card.offsetParent).map((card) => card.dataset.key)"
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_browser.Browser]:
    """A browser."""
    with _browser.browser(program(*_browser.NAMES), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_in_a_browser(chromium: _browser.Browser, tmp_path: Path) -> None:
    """The page fits narrow and wide windows, follows light and dark, finds keys, and requests nothing else."""
    path = tmp_path / "page.html"
    samples = [
        SampleItems(b"%s/%02d" % (b"ab"[i % 2 : i % 2 + 1], i), "x" * 90, 0, [*hostile(ATTACK).items])
        for i in range(20)
    ]
    samples.append(sample(b"k" * 200, text("y" * 100, "z" * 3000), text("t", "\u4e00" * 500)))
    path.write_bytes(page_of(*samples, title="t" * 200))
    ground = {}
    for width, scheme in ((390, "light"), (1280, "dark")):
        chromium.open(path, width, scheme=scheme)
        assert chromium.run("document.documentElement.scrollWidth") == width
        ground[scheme] = chromium.run("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(244, 245, 247)", "dark": "rgb(18, 21, 25)"}
    assert chromium.run("document.querySelectorAll('article').length") == 21

    def search(words: str) -> list[str]:
        chromium.run(f"search.value = {words!r}; search.dispatchEvent(new Event('input'))")
        found: list[str] = chromium.run(VISIBLE)
        return found

    assert search("B/0") == ["b/01", "b/03", "b/05", "b/07", "b/09"]
    assert chromium.run("found.textContent") == "5 of 21 samples"
    assert search("nowhere") == []
    assert chromium.run("document.getElementById('none').offsetParent !== null") is True
    assert len(search("")) == 21
    assert chromium.run("found.textContent") == "21 samples"
    seen = []
    for _ in range(3):
        chromium.run("theme.click()")
        seen.append(
            (chromium.run("theme.textContent"), chromium.run("getComputedStyle(document.body).backgroundColor"))
        )
    light, dark = ground["light"], ground["dark"]
    assert seen == [("Theme: light", light), ("Theme: dark", dark), ("Theme: system", dark)]
    assert {address.partition(":")[0] for address in chromium.asked} <= {"file", "data", "about"}
    assert len([address for address in chromium.asked if address.startswith("file")]) == 2
    assert chromium.said == []


def test_classes_and_pictures_in_a_browser(chromium: _browser.Browser, tmp_path: Path) -> None:
    """Classes filter, texts are searched, keys move the viewer through the results, and Esc closes it."""
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    path = tmp_path / "page.html"
    data = noise((60, 40))
    samples = [
        sample(b"k%d" % i, picture(b"png", "png", data), text("cls", str(i % 2)), text("txt", f"Caption {i}"))
        for i in range(6)
    ]
    path.write_bytes(page_of(*samples, names=("cat", "dog")))
    chromium.open(path, 1280)
    chromium.run("document.querySelectorAll('article')[1].querySelector('.chip').click()")
    assert chromium.run(VISIBLE) == ["k1", "k3", "k5"]
    assert chromium.run("[classes.selectedOptions[0].textContent, found.textContent]") == ["dog (3)", "3 of 6 samples"]
    chromium.run("search.value = 'DOG caption'; search.dispatchEvent(new Event('input'))")
    assert chromium.run(VISIBLE) == ["k1", "k3", "k5"]
    style = "getComputedStyle(document.querySelector('article:not([hidden]) .open img'))"
    assert chromium.run(f"{style}.imageRendering") == "auto"

    def shown() -> Any:
        return chromium.run("viewer.open && [large.alt, viewer.querySelector('.caption').textContent,"
                          " document.getElementById('large-count').textContent]")  # fmt: skip

    def press(key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            chromium("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **text)

    chromium.run("document.querySelectorAll('article')[1].querySelector('.open').focus()")
    press("Enter")
    assert shown() == ["png of k1", "Caption 1", "1 of 3"]
    press("ArrowRight")
    assert shown() == ["png of k3", "Caption 3", "2 of 3"]
    press("End")
    assert shown() == ["png of k5", "Caption 5", "3 of 3"]
    press("ArrowRight")
    press("ArrowLeft")
    press("ArrowLeft")
    assert shown() == ["png of k3", "Caption 3", "2 of 3"]
    press("Escape")
    assert shown() is False
    focused = "document.activeElement.closest('article').dataset.key"
    assert happens(lambda: chromium.run(focused) == "k3")  # the dialog sends its close event after it has closed
    press("/")
    assert chromium.run("document.activeElement.id") == "search"
    chromium.run("search.value = ''; search.dispatchEvent(new Event('input'))")
    chromium.run("document.querySelector('.pick').click()")
    assert chromium.run(VISIBLE) == ["k0", "k2", "k4"]
    chromium.run("document.querySelector('.pick').click()")
    assert len(chromium.run(VISIBLE)) == 6
    assert chromium.said == []


KEYS = {"Enter": 13, "Escape": 27, "End": 35, "ArrowLeft": 37, "ArrowRight": 39, "/": 191}


def test_counts_above_the_samples(chromium: _browser.Browser, tmp_path: Path) -> None:
    """In a narrow window the histograms are closed, above the first sample; in a wide one open, beside it."""
    path = tmp_path / "page.html"
    path.write_bytes(page_of(*PAIR, sample(b"d/c", text("cls", "12"))))
    for width, opened, above in ((390, False, True), (1280, True, False)):
        chromium.open(path, width)
        assert chromium.run("document.querySelector('#charts > details').open") is opened
        top = "document.querySelector({!r}).getBoundingClientRect().top"
        assert chromium.run(top.format("#samples") + " > " + top.format("#charts")) is above
        title = "document.querySelector('#charts summary').textContent"
        assert chromium.run(title) == "Counts of these 3 samples"
