"""What can be seen of a sample: for each entry its kind, what its header says, the beginning of its text.

Only heads are read, and never more of a large entry than is looked at. Nothing is unpickled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tarkit.media import headers, kinds
from tarkit.media import headers as arrays
from tarkit.samples.sample import TarSample, key_of
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry

TEXT = 4096  # bytes of a text that are shown at most
JSON = 1 << 16  # bytes of a JSON document that is read whole
FAR = 1 << 20  # bytes of an entry, of a stream's sample that memory does not hold, that are looked at

_REGULAR = (block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS)
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
    """The content of an entry, `size` bytes, of which those before `reach` may be looked at."""

    source: Source
    start: int
    size: int
    reach: int

    def read(self, pos: int, n: int) -> bytes:
        """At most `n` bytes from `pos` on; none behind `reach`."""
        stop = min(pos + n, self.size, self.reach)
        return self.source.read(self.start + pos, self.start + stop) if 0 <= pos < stop else b""


@dataclass(slots=True)
class Item:
    """An entry as it is seen. `field` is None without a key, `size` in bytes, `about` what its header says:

    `width` `height` · `seconds` `rate` `channels` · `dtype` `shape` · `arrays` · `members` · `target` · `named` (what
    the name says that it is, and it is not) · `note`. `text` is its text, or, if `cut`, the beginning of that.
    `payload` is good until the next item is asked for.
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
class Seen:
    """A sample as it is seen: its key (None: entries of an archive that has no sample), where it begins, its items."""

    key: bytes | None
    archive: str
    offset: int
    items: list[Item]


def look(sample: TarSample) -> Iterator[Item]:
    """Look at the entries of a sample, one after the other; what of a stream was looked at is let go."""
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
    if entry.type not in _REGULAR and not entry.sparse:
        about = {"target": entry.link} if entry.link else {}
        return Item(entry.name, named, entry.size, _TYPES.get(entry.type, "unknown type"), about)
    if entry.sparse:
        return Item(entry.name, named, entry.real, "sparse file", {"note": "its content is not looked at"})
    payload = Payload(sample.source, entry.data, entry.size, reach)
    return see(Item(entry.name, named, entry.size, "", payload=payload), payload)


def see(item: Item, payload: Payload) -> Item:
    """Fill in the kind of an item, what its header says, and its text."""
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
    if (said := kinds.named_for(named, item.kind)) is not None:
        item.about["named"] = said
    return item


def _about(item: Item, payload: Payload) -> dict[str, Any]:
    """What the header says; `zip` becomes `npz` when there is nothing but arrays in it."""
    kind, read, size = item.kind, payload.read, payload.size
    if kind in headers.PICTURES:
        found = headers.picture_size(kind, read)
        return {"width": found[0], "height": found[1]} if found else {"note": "its header does not say how large it is"}
    if kind in ("wav", "flac"):
        heard = headers.sound(kind, read, size)
        return heard._asdict() if heard else {"note": "its header makes no sense"}
    if kind == "npy":
        return _npy(arrays.npy(read), size)
    if kind == "zip":
        return _zip(item, *arrays.members(read))
    if kind == "safetensors":
        found_all = arrays.safetensors(read, size)
        return {"note": "its header is not read"} if found_all is None else {"arrays": _arrays(found_all)}
    return {"note": "not opened"} if kind == "pickle" else {}


def _npy(array: arrays.Array | None, size: int) -> dict[str, Any]:
    if array is None:
        return {"note": "its header makes no sense"}
    about: dict[str, Any] = {"dtype": array.dtype, "shape": list(array.shape)}
    if array.pickled:
        about["note"] = "pickled objects, not opened"
    elif array.bytes not in (None, size):
        about["note"] = f"by its header it would have {array.bytes} bytes"
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
        about["note"] = "there may be more in it"
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


def see_sample(sample: TarSample, visit: Callable[[Item], None] | None = None) -> Seen:
    """A sample as it is seen; `visit` gets each item while its payload is good."""
    items = []
    for item in look(sample):
        if visit is not None:
            visit(item)
        item.payload = None
        items.append(item)
    return Seen(sample.key, sample.source.name, sample.start, items)


def pass_by(sample: TarSample) -> None:
    """Read on to the end of a sample, whose names alone are wanted: nothing of it is kept."""
    while sample.more is not None:
        sample.source.release(sample.stop)
        sample.more()
