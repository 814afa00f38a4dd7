"""The page of `show --html`: what is in it, that nothing gets out of its place, and how a browser sees it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tarkit.inspecting.item import Item, Payload, Seen
from tarkit.views import html as pages
from tarkit.views import pictures
from tarkit.views.html import Chart, charts, class_bars, is_class, size_bars
from tests import _browser
from tests._tools import program

VOID = {"meta", "input", "img", "link", "br"}
ATTACK = (
    "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;</pre></textarea>--><style>*{display:none}</style>"
)


class Tree(HTMLParser):
    """The elements of a page: what is in each of the tags that are open, checked to be closed in order."""

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
        """The texts inside tags of these names."""
        return [text for tag, text in self.texts if tag in tags]

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        """Those of each tag of this name."""
        return [attributes for each, attributes in self.tags if each == tag]


class Held:
    """A source of bytes."""

    name, seekable = "x.tar", True

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, start: int, stop: int) -> bytes:
        return self.data[start:stop]


def picture(field: bytes, kind: str, data: bytes) -> Item:
    """An item with a picture."""
    source = Held(data)
    return Item(b"a." + field, field, len(data), kind, {}, payload=Payload(source, 0, len(data), len(data)))  # type: ignore[arg-type]


def text(name: str, content: str, kind: str = "text", cut: bool = False) -> Item:
    """An item with a text."""
    return Item(b"a." + name.encode(), name.encode(), len(content), kind, {}, content, cut)


def page_of(*samples: Seen, title: str = "x.tar", summary: str = "All samples") -> bytes:
    """The page of some samples."""
    gallery = pages.Gallery()
    for seen in samples:
        for item in seen.items:
            gallery.take(item)
        gallery.add(seen)
    return gallery.page(title, summary)


ARRAY = Item(b"d/b.npy", b"npy", 80, "npy", {"dtype": "int8", "shape": [2]})
JSON = text("json", '{"label": "cat", "x": 1.50}', "json")
PAIR = [
    Seen(b"d/a", "x.tar", 0, [text("cls", "1"), JSON, text("t", "w " * 50)]),
    Seen(b"d/b", "x.tar", 1024, [text("cls", "1"), ARRAY]),
]


def test_page() -> None:
    """Title, tools, a card for each sample with a row for each field; long texts can be unfolded."""
    tree = Tree(page_of(*PAIR))
    assert tree.text("title", "h1") == ["x.tar", "x.tar"]
    assert tree.text("h2") == ["d/a", "d/b"]
    assert [each["data-key"] for each in tree.attributes("article")] == ["d/a", "d/b"]
    assert tree.text("output") == ["2 samples"]
    assert tree.text("p")[:3] == ["All samples", "x.tar at 0", "x.tar at 1024"]
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
    assert tree.text("b", "span") == ["t", ("w " * 30)[:59] + "\u2026"]


def test_for_everyone() -> None:
    """Language, labels, headings, a way past the tools: what those need who do not see or have no mouse."""
    tree = Tree(page_of(*PAIR))
    assert tree.attributes("html") == [{"lang": "en"}]
    assert [each["for"] for each in tree.attributes("label")] == ["search"]
    assert tree.attributes("a") == [{"class": "skip", "href": "#samples"}]
    assert [tag for tag, _ in tree.tags if re.fullmatch("h[1-6]", tag)] == ["h1", "h2", "h2"]
    assert all(each["aria-hidden"] == "true" for each in tree.attributes("svg"))
    assert {tag for tag, _ in tree.tags} >= {"header", "main", "section", "article", "caption"}
    ids = [attributes["id"] for _, attributes in tree.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_nothing_from_outside() -> None:
    """No address but those of the page itself; a policy that lets in just this style and this script."""
    page = page_of(*PAIR)
    tree = Tree(page)
    [policy] = [each["content"] for each in tree.attributes("meta") if each.get("http-equiv")]
    hashes = []
    for tag in ("style", "script"):
        [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", page.decode(), re.S)
        hashes.append("sha256-" + base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode())
    assert policy == (
        f"default-src 'none'; img-src data:; style-src '{hashes[0]}'; script-src '{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not re.search(rb"https?:|//[a-z]|@import|url\(", page)
    assert not any(name.startswith("on") or name == "style" for _, attributes in tree.tags for name in attributes)


def test_hostile() -> None:
    """Keys, names, texts, JSON, archives and titles that would be tags: all of them come out as text."""
    plain = Counter(tag for tag, _ in Tree(page_of(hostile("x" * len(ATTACK)))).tags)
    page = page_of(hostile(ATTACK), title=ATTACK, summary=ATTACK)
    tree = Tree(page)
    assert Counter(tag for tag, _ in tree.tags) == plain
    assert b"<script>alert" not in page
    assert tree.attributes("article")[0]["data-key"] == ATTACK
    assert tree.text("h2") == [ATTACK]
    assert tree.text("title") == [ATTACK]
    assert {name for _, attributes in tree.tags for name in attributes}.isdisjoint({"onerror", "onload"})
    [first, second] = tree.text("pre")
    assert first.startswith(ATTACK)
    assert json.loads(second) == {ATTACK: ATTACK, "x": "y" * 50}
    assert sum(ATTACK in text for text in tree.text("caption", "th")) >= 3


def hostile(text_: str) -> Seen:
    """A sample with a text in each place."""
    name = text_.encode()
    return Seen(
        name,
        text_,
        0,
        [
            Item(name + b".t", b"t" + name, 1, "text", {}, (text_ + " ") * 2 + "y" * 50),
            Item(name, None, 1, text_, {"note": text_, "named": text_}),
            Item(b"a.short", b"short", 1, "text", {}, text_[:30]),
            Item(b"a.npz", b"npz", 1, "npz", {"arrays": [{"name": text_, "dtype": text_, "shape": [1]}]}),
            Item(b"a.json", b"json", 1, "json", {}, json.dumps({text_: text_, "x": "y" * 50})),
        ],
    )


def test_control_characters() -> None:
    """What is not printable is shown as escapes, line ends and tabs of texts are kept."""
    seen = Seen(b"\x1b[2J\xff", "x", 0, [text("t", "a\x1b[1m\u202e\tb\nc" + "d" * 80)])
    tree = Tree(page_of(seen))
    assert tree.text("h2") == ["\\x1b[2J\\xff"]
    assert tree.text("pre") == ["a\\x1b[1m\\xe2\\x80\\xae  b\nc" + "d" * 80]
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", page_of(seen))


def test_texts_have_bounded_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts by the hundred are cut to their beginnings."""
    assert pages.ROOM + pages.TEXT_ROOM < 4_500_000, "a page has less than 5 MB"
    monkeypatch.setattr(pages, "TEXT_ROOM", 50_000)
    samples = [Seen(b"%d" % i, "x", 0, [text("json", json.dumps({"a": "x" * 3000}), "json")]) for i in range(100)]
    page = page_of(*samples)
    assert len(page) < 150_000
    found = Tree(page).text("pre")
    assert len(found) == 100
    assert len(found[0]) > 3000
    assert found[-1].endswith("\u2026")


# ---- pictures


def test_thumbnails() -> None:
    """A thumbnail for each picture, loaded when it comes into view; why there is none for one that is damaged."""
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    out = io.BytesIO()
    images.new("RGB", (600, 300), "red").save(out, "PNG")
    data = out.getvalue()
    damaged = picture(b"bad.png", "png", data[:60])
    huge = picture(b"huge.png", "png", data)
    huge.about = {"width": 100_000, "height": 100_000}
    page = page_of(Seen(b"a", "x", 0, [picture(b"png", "png", data), damaged, huge, text("t", "x")]))
    tree = Tree(page)
    [image] = tree.attributes("img")
    assert (image["alt"], image["loading"], image["decoding"]) == ("png of a", "lazy", "async")
    address = image["src"] or ""
    assert address.startswith("data:image/jpeg;base64,")
    with images.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))) as thumbnail:
        assert thumbnail.size == (240, 120)
        assert thumbnail.getpixel((5, 5))[0] > 240
    assert tree.text("div") == ["it cannot be decoded", "too many pixels"]
    assert tree.text("figcaption") == ["png", "bad.png", "huge.png"]


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pictures that browsers know are taken as they are, others are said to need the extra."""
    monkeypatch.setattr(pictures, "available", lambda: False)
    small, large = picture(b"gif", "gif", b"GIF89a"), picture(b"png", "png", bytes(40_000))
    odd = picture(b"ppm", "netpbm", b"P5 1 1 1 1")
    tree = Tree(page_of(Seen(b"a", "x", 0, [small, large, odd])))
    assert [each["src"] for each in tree.attributes("img")] == ["data:image/gif;base64,R0lGODlh"]
    assert tree.text("div") == ["thumbnails need tarkit[images]"] * 2


def test_pictures_have_bounded_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the page is full there are no more, and they are counted."""
    monkeypatch.setattr(pictures, "available", lambda: False)
    gallery = pages.Gallery()
    for _ in range(200):
        item = picture(b"png", "png", bytes(30_000))
        gallery.take(item)
        gallery.add(Seen(b"a", "x", 0, [item]))
    tree = Tree(gallery.page("x", ""))
    shown = len(tree.attributes("img"))
    assert shown == pages.ROOM // len("data:image/png;base64," + "A" * 40_000)
    assert gallery.left_out == 200 - shown == tree.text("div").count("the page is full")
    assert len(gallery.page("x", "")) < 5_000_000


# ---- histograms


def test_size_bars() -> None:
    """Ranges of 1, 2, 5; those between that are empty too."""
    assert size_bars([7, 7]) == [("7 B", 2)]
    assert size_bars([0, 1, 4, 5, 999, 20_000]) == [
        ("0 B", 1), ("1 B to 2 B", 1), ("2 B to 5 B", 1), ("5 B to 10 B", 1), ("10 B to 20 B", 0), ("20 B to 50 B", 0),
        ("50 B to 100 B", 0), ("100 B to 200 B", 0), ("200 B to 500 B", 0), ("500 B to 1 kB", 1), ("1 kB to 2 kB", 0),
        ("2 kB to 5 kB", 0), ("5 kB to 10 kB", 0), ("10 kB to 20 kB", 0), ("20 kB to 50 kB", 1),
    ]  # fmt: skip
    assert size_bars([1 << 60, 1])[-1][1] == 1


def test_class_bars() -> None:
    """The most frequent first, numbers in their order; more than there is room for are one bar."""
    assert class_bars(Counter(["2", "10", "10", "2", "1", "x", "x", "x"])) == [("x", 3), ("2", 2), ("10", 2), ("1", 1)]
    many = Counter({str(number): 100 - number for number in range(30)})
    assert class_bars(many)[-2:] == [("19", 81), ("10 others", sum(range(71, 81)))]
    assert [is_class(Counter(text)) for text in ("aabb", "aaaa", "abcd", "aab", "")] == [
        True,
        False,
        False,
        False,
        False,
    ]


def test_charts() -> None:
    """Classes of fields and of members of JSON, then sizes."""
    samples = [
        Seen(b"%d" % i, "x", 0, [
            text("cls", f"{i % 2}\n"), text("txt", f"text {i}"),
            text("json", json.dumps({"label": "ab"[i % 2], "ok": True, "n": i, "f": 1.5, "l": [1]}), "json"),
            Item(b"README", None, 5, "text", {}, "x"),
        ])
        for i in range(4)
    ]  # fmt: skip
    assert charts(samples) == [
        Chart("cls", [("0", 2), ("1", 2)]),
        Chart("json.label", [("a", 2), ("b", 2)]),
        Chart("size of cls", [("2 B", 4)]),
        Chart("size of txt", [("6 B", 4)]),
        Chart("size of json", [("54 B", 4)]),
    ]
    assert charts([]) == []
    odd = [
        Seen(b"a", "x", 0, [text("json", each, "json")]) for each in ("[1]", "7", '"' + "x" * 99 + '"', "{", "1e999")
    ]
    assert [chart.title for chart in charts(odd)] == ["size of json"]


# ---- in a browser


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_browser.Browser]:
    """A browser."""
    with _browser.browser(program(*_browser.NAMES), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_in_a_browser(window: _browser.Browser, tmp_path: Path) -> None:
    """It fits narrow and wide windows, follows light and dark, finds keys, asks nobody, runs no script but its own."""
    path = tmp_path / "page.html"
    samples = [
        Seen(b"%s/%02d" % (b"ab"[i % 2 : i % 2 + 1], i), "x" * 90, 0, [*hostile(ATTACK).items]) for i in range(20)
    ]
    samples.append(Seen(b"k" * 200, "x.tar", 0, [text("y" * 100, "z" * 3000), text("t", "\u4e00" * 500)]))
    path.write_bytes(page_of(*samples, title="t" * 200))
    ground = {}
    for width, scheme in ((390, "light"), (1280, "dark")):
        window.open(path, width, scheme=scheme)
        assert window.run("document.documentElement.scrollWidth") == width
        ground[scheme] = window.run("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(246, 247, 249)", "dark": "rgb(20, 23, 27)"}
    assert window.run("document.querySelectorAll('article').length") == 21
    visible = (
        "[...document.querySelectorAll('article')].filter((card) => card.offsetParent).map((card) => card.dataset.key)"
    )

    def search(words: str) -> list[str]:
        window.run(f"search.value = {words!r}; search.dispatchEvent(new Event('input'))")
        found: list[str] = window.run(visible)
        return found

    assert search("B/0") == ["b/01", "b/03", "b/05", "b/07", "b/09"]
    assert window.run("found.textContent") == "5 of 21 samples"
    assert search("nowhere") == []
    assert window.run("document.getElementById('none').offsetParent !== null") is True
    assert len(search("")) == 21
    assert window.run("found.textContent") == "21 samples"
    seen = []
    for _ in range(3):
        window.run("theme.click()")
        seen.append((window.run("theme.textContent"), window.run("getComputedStyle(document.body).backgroundColor")))
    light, dark = ground["light"], ground["dark"]
    assert seen == [("Colours: light", light), ("Colours: dark", dark), ("Colours: as the system", dark)]
    assert {address.partition(":")[0] for address in window.asked} <= {"file", "data", "about"}
    assert len([address for address in window.asked if address.startswith("file")]) == 2
    assert window.said == []
