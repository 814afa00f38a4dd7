"""The description of a sample for `show`: for each entry its kind, metadata of its header, the beginning of its text.

Only the first bytes of an entry are read. Nothing is unpickled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tarkit.errors import MissingLibrary, TarkitError
from tarkit.media import headers, kinds
from tarkit.media import headers as arrays
from tarkit.samples.sample import TarSample, key_of
from tarkit.sizes import plural
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry

TEXT = 4096  # maximum length of a text
JSON = 1 << 16  # maximum size of a JSON document that is read whole, in bytes
FAR = 1 << 20  # bytes of an entry that may be read if the sample of a stream is not in memory

_TYPES = {
    block.HARD_LINK: "hard link",
    block.SYMLINK: "symbolic link",
    block.CHAR: "device",
    block.BLOCK_DEVICE: "device",
    block.DIRECTORY: "directory",
    block.FIFO: "fifo",
    block.PAX_GLOBAL: "global header",
    block.GNU_VOLUME: "volume label",
    block.GNU_DUMPDIR: "directory",
}


@dataclass(frozen=True, slots=True)
class Payload:
    """The content of an entry, `size` bytes, of which those before `reach` may be read."""

    source: Source
    start: int
    size: int
    reach: int

    def read(self, pos: int, n: int) -> bytes:
        """Return at most `n` bytes from `pos` on, none after `reach`."""
        stop = min(pos + n, self.size, self.reach)
        return self.source.read(self.start + pos, self.start + stop) if 0 <= pos < stop else b""


@dataclass(slots=True)
class Item:
    """The description of an entry.

    Attributes:
        name: the name of the entry.
        field: its field; None without a key.
        size: its size in bytes.
        kind: the kind of its content.
        about: metadata of its header: `width` `height` · `seconds` `rate` `channels` · `dtype` `shape` · `arrays` ·
            `members` · `target` · `named` (the format of the name, if the content has another) · `note`.
        text: its text, or with `cut` the beginning of its text.
        payload: its content, valid until the next item is requested.
    """

    name: bytes
    field: bytes | None
    size: int
    kind: str
    about: dict[str, Any] = dataclasses.field(default_factory=dict)
    text: str | None = None
    cut: bool = False
    payload: Payload | None = None


@dataclass(slots=True)
class SampleItems:
    """The description of a sample: its key (None for an archive without samples), archive, offset and items."""

    key: bytes | None
    archive: str
    offset: int
    items: list[Item]


def items_of(sample: TarSample) -> Iterator[Item]:
    """Yield the items of a sample; bytes of a stream before the current item are released."""
    source, done = sample.source, 0
    while True:
        entries = sample.entries
        for entry in entries[done:]:
            if sample.more is not None:
                source.release(entry.start)
            yield _item(sample, entry, FAR if sample.more is not None else entry.size)
        done = len(entries)
        if sample.more is None:
            return
        source.release(sample.stop)
        sample.more()


def _item(sample: TarSample, entry: Entry, reach: int) -> Item:
    keyed = sample.key is not None and key_of(entry) is not None
    named = entry.name[len(sample.key or b"") + 1 :] if keyed else None
    if entry.type not in block.FILES and not entry.sparse:
        about = {"target": entry.link} if entry.link else {}
        return Item(entry.name, named, entry.size, _TYPES.get(entry.type, "unknown type"), about)
    if entry.sparse:
        return Item(entry.name, named, entry.real, "sparse file", {"note": "content not read"})
    payload = Payload(sample.source, entry.data, entry.size, reach)
    return describe(Item(entry.name, named, entry.size, "", payload=payload), payload)


def describe(item: Item, payload: Payload) -> Item:
    """Set the kind, the metadata and the text of an item, and return it."""
    named = item.field if item.field is not None else item.name.rpartition(b"/")[2]
    head = payload.read(0, kinds.HEAD)
    if len(head) < payload.size <= JSON and head.lstrip()[:1] in (b"{", b"["):
        head = payload.read(0, JSON)
    item.kind = kinds.kind_of(head, named, payload.size)
    if kinds.is_text(item.kind):
        whole = len(head) == payload.size
        text = kinds.decode(head, whole) if item.kind != "latin text" else head.decode("utf-8", "surrogateescape")
        limit = JSON if item.kind == "json" else TEXT
        item.text = (text or "")[:limit]
        item.cut = not whole or len(item.text) < len(text or "")
    else:
        item.about = _about(item, payload)
    if (other := kinds.named_for(named, item.kind)) is not None:
        item.about["named"] = other
    return item


def _about(item: Item, payload: Payload) -> dict[str, Any]:
    """Return the metadata of the header; the kind `zip` becomes `npz` if all members are arrays."""
    kind, read, size = item.kind, payload.read, payload.size
    if kind in headers.PICTURES:
        pixels = headers.picture_size(kind, read)
        return {"width": pixels[0], "height": pixels[1]} if pixels else {"note": "no size in the header"}
    if kind in ("wav", "flac"):
        sound = headers.sound(kind, read, size)
        return sound._asdict() if sound else {"note": "invalid header"}
    if kind == "npy":
        return _npy(arrays.npy(read), size)
    if kind == "zip":
        return _zip(item, *arrays.members(read))
    if kind == "safetensors":
        found_all = arrays.safetensors(read, size)
        return {"note": "header not read"} if found_all is None else {"arrays": _arrays(found_all)}
    if kind == "tenbin":
        listed = headers.tenbin(read, size)
        return {"note": "invalid header"} if listed is None else {"arrays": _arrays(listed)}
    if kind in ("msgpack", "cbor"):
        return _message(item, payload)
    return {"note": "not opened"} if kind == "pickle" else {}


def _message(item: Item, payload: Payload) -> dict[str, Any]:
    """Set the text of a message to that of its value in Python; return a note where that cannot be had."""
    from tarkit.media.coding import Coder

    data = payload.read(0, JSON)
    if len(data) < payload.size:
        return {"note": "too long to be decoded"}
    try:
        text = repr(Coder().decode(item.kind, data))
    except MissingLibrary:
        return {"note": f"not decoded: that requires tarkit[{item.kind}]"}
    except (TarkitError, RecursionError):
        return {"note": "cannot be decoded"}
    item.text, item.cut = text[:TEXT], len(text) > TEXT
    return {}


def _npy(array: arrays.Array | None, size: int) -> dict[str, Any]:
    if array is None:
        return {"note": "invalid header"}
    about: dict[str, Any] = {"dtype": array.dtype, "shape": list(array.shape)}
    if array.pickled:
        about["note"] = "pickled objects, not opened"
    elif array.bytes not in (None, size):
        about["note"] = f"the header requires {plural(array.bytes, 'byte')}"
    return about


def _zip(item: Item, members: list[arrays.NpzMember], whole: bool) -> dict[str, Any]:
    if members and all(member.name.endswith(".npy") for member in members):
        item.kind = "npz"
        about: dict[str, Any] = {"arrays": _arrays(members)}
        pickled = any(member.array and member.array.pickled for member in members)
    else:
        about = {"members": [member.name for member in members]}
        pickled = any(member.name.endswith((".pkl", ".pickle")) for member in members)
    if pickled:
        about["note"] = "pickled objects, not opened"
    elif not whole:
        about["note"] = "there may be more members"
    return about


def _arrays(members: list[arrays.NpzMember]) -> list[dict[str, Any]]:
    return [
        {
            "name": member.name.removesuffix(".npy"),
            "dtype": member.array.dtype if member.array else None,
            "shape": list(member.array.shape) if member.array else None,
        }
        for member in members
    ]


def describe_sample(sample: TarSample, visit: Callable[[Item], None] | None = None) -> SampleItems:
    """Return the description of a sample; `visit` is called with each item while its payload can be read."""
    items = []
    for item in items_of(sample):
        if visit is not None:
            visit(item)
        item.payload = None
        items.append(item)
    return SampleItems(sample.key, sample.source.name, sample.start, items)


class EntryName(NamedTuple):
    """The path of an entry, the key and the field in it (None for an entry without a key), and its size in bytes."""

    path: str
    key: str | None
    field: str | None
    size: int


def names_of(sample: TarSample) -> Iterator[EntryName]:
    """Yield the names of the entries of a sample, without global headers, which have none; no content is read."""
    while sample.more is not None:
        sample.source.release(sample.stop)
        sample.more()
    key = (sample.key or b"").decode("utf-8", "surrogateescape")
    for entry in sample.entries:
        if entry.type == block.PAX_GLOBAL:
            continue
        path = entry.name.decode("utf-8", "surrogateescape")
        size = entry.real if entry.sparse else entry.size
        keyed = sample.key is not None and key_of(entry) is not None
        yield EntryName(path, key, path[len(key) + 1 :], size) if keyed else EntryName(path, None, None, size)
