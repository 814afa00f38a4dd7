"""A sample as Python sees it: a read-only mapping from the names of fields to their bytes."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView

from tarkit.samples.sample import KEYLESS, TarSample
from tarkit.tar import block
from tarkit.tar.reader import Raw

WHOLE = 1 << 20  # bytes; a sample up to this size is read as a whole

_REGULAR = frozenset((block.REGULAR, block.REGULAR_V7, block.CONTIGUOUS))


class Sample(Mapping[str, bytes]):
    """One sample: `sample["jpg"]` is the content of its field `jpg`, as bytes.

    It stays good after the next one was asked for. Only what is larger than 1 MiB is read later, field by field, when
    it is asked for; of a stream that can be done until the next sample is asked for.

    Upper and lower case are the same where a field is looked up; iterating gives the names as the archive has them.
    Entries without a key, such as directories, are no fields.

    Attributes:
        key: the path of the entries up to the first dot after the last slash; bytes that are not UTF-8 are surrogates,
            as in all paths of Python.
        shard: the name of the archive that it was read from.
        offset: where it begins in that archive, in bytes of the tar.
    """

    __slots__ = ("_contents", "_data", "_entries", "_sample")

    def __init__(self, sample: TarSample, data: bytes | None) -> None:
        """`data` is the range of the sample in its source, where that was read as a whole."""
        self._sample = sample
        self._data = data
        self._entries: dict[str, Raw] | None = None
        self._contents: dict[str, bytes] | None = None

    @property
    def key(self) -> str:
        """The key."""
        return (self._sample.key or b"").decode("utf-8", "surrogateescape")

    @property
    def shard(self) -> str:
        """The name of the archive that it was read from."""
        return self._sample.source.name

    @property
    def offset(self) -> int:
        """Where it begins in that archive, in bytes of the tar."""
        return self._sample.start

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each field's content, in bytes, by its name; reads no content."""
        return {name: raw[3] if raw[7] < 0 else raw[7] for name, raw in self._index().items()}

    def __getitem__(self, field: str) -> bytes:
        """Return the content of a field.

        Raises:
            KeyError: the sample has no such field.
            Problem: the field has no content that can be read: it is a sparse file, or links to what is not in here.
        """
        contents = self._small()
        if field in contents:
            return contents[field]
        name = self._spelled(field)
        if name is None:
            raise KeyError(field)
        return contents[name] if contents else self._read(self._index()[name])

    def __contains__(self, field: object) -> bool:
        return isinstance(field, str) and self._spelled(field) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._small() or self._index())

    def __len__(self) -> int:
        return len(self._small() or self._index())

    def __repr__(self) -> str:
        return f"<tarkit.Sample {self.key!r}: {', '.join(self)}>"

    def keys(self) -> KeysView[str]:
        """The names of the fields, in order."""
        return (self._small() or self._index()).keys()

    def values(self) -> ValuesView[bytes]:
        """The contents of the fields, in order."""
        contents = self._small()
        return contents.values() if contents else super().values()

    def items(self) -> ItemsView[str, bytes]:
        """The names of the fields and their contents, in order."""
        contents = self._small()
        return contents.items() if contents else super().items()

    def _spelled(self, field: str) -> str | None:
        """The name of a field as the archive spells it: that very name, else the first that differs in case alone."""
        names = self.keys()
        if field in names:
            return field
        folded = field.lower()
        return next((name for name in names if name.lower() == folded), None)

    def _small(self) -> dict[str, bytes]:
        """The contents of all fields of a small sample that consists of plain files; empty for any other."""
        if self._contents is None:
            self._contents = {}
            sample, data = self._sample, self._data
            if data is not None and sample.plain:
                cut, base = len(sample.key or b"") + 1, sample.start
                self._contents = {
                    raw[0][cut:].decode("utf-8", "surrogateescape"): data[raw[2] - base : raw[2] - base + raw[3]]
                    for raw in sample.raw
                }
        return self._contents

    def _index(self) -> dict[str, Raw]:
        """The entry of each field, by name; of two with one name it is the first."""
        if self._entries is None:
            self._entries = {}
            prefix = (self._sample.key or b"") + b"."
            cut = len(prefix)
            for raw in self._sample.raw:
                name = raw[0]
                if name.startswith(prefix) and name.find(b"/", cut) < 0 and raw[5] not in KEYLESS:
                    self._entries.setdefault(name[cut:].decode("utf-8", "surrogateescape"), raw)
        return self._entries

    def _read(self, raw: Raw) -> bytes:
        sample = self._sample
        if raw[5] not in _REGULAR or raw[7] >= 0:
            from tarkit.samples.values import View

            raw = View(sample).located(raw[0][len(sample.key or b"") + 1 :], raw)
        if self._data is not None:
            return self._data[raw[2] - sample.start : raw[2] - sample.start + raw[3]]
        return sample.source.read(raw[2], raw[2] + raw[3])
