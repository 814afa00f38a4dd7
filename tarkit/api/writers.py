"""Write samples from Python values: one archive, or shards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import BinaryIO, Self

from tarkit.api.output import Output
from tarkit.api.run import Run
from tarkit.api.shards import shards_output
from tarkit.errors import TarkitError, show
from tarkit.media.coding import Coder
from tarkit.samples.sample import TarSample, split_name
from tarkit.samples.validate import NameChecks
from tarkit.shards.writer import Shard
from tarkit.streams.ranges import HeldRange
from tarkit.tar.header import encode
from tarkit.tar.reader import Entry
from tarkit.tar.writer import PADS, EntryWriter

Value = object
"""What a field can be given: bytes, or what the table of codecs encodes for a field of that name."""


class _Encoder:
    """Makes the bytes of a sample in an archive out of its key and values."""

    def __init__(self, mtime: int) -> None:
        self._mtime = mtime
        self._coder = Coder()

    def encode(self, key: str, fields: Mapping[str, Value]) -> tuple[bytes, bytes, list[Entry]]:
        """Return the key as bytes, the entries one behind the other, and where each of them is.

        Raises TarkitError for a name that no field or key can have, and TypeError for a value that has no encoding.
        """
        raw = key.encode("utf-8", "surrogateescape")
        if not fields:
            raise TarkitError(f"the sample {show(key)} has no field", "a sample is at least one file")
        pieces: list[bytes] = []
        entries: list[Entry] = []
        at = 0
        for field, value in fields.items():
            name = raw + b"." + field.encode("utf-8", "surrogateescape")
            if split_name(name) != (raw, name[len(raw) + 1 :]) or not name[len(raw) + 1 :]:
                raise TarkitError(
                    f"{show(name)} would be read as another sample",
                    "a key is not empty and has no dot behind its last slash; a field has no slash",
                )
            data = self._bytes(field, value)
            header = encode(name, len(data), mtime=self._mtime)
            start, content = at, at + len(header)
            at = content + len(data) + len(PADS[len(data) % 512])
            pieces += (header, data, PADS[len(data) % 512])
            entries.append(Entry(name, start, content, len(data), at, b"0", b"", -1))
        return raw, b"".join(pieces), entries

    def _bytes(self, field: str, value: Value) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, str):
            return value.encode("utf-8", "surrogateescape")
        kind = self._coder.kind(field)
        if kind is None or isinstance(value, (int, float)):
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return str(value).encode()
            raise TypeError(
                f"field {field!r}: {type(value).__name__} has no encoding here; give it bytes, str, int or float, "
                "or the field a name that says how, such as json or npy"
            )
        return self._coder.encode(field, value)


class TarWriter:
    """Write samples to one archive.

    bytes are written as they are, str as UTF-8, int and float as decimal text. Other values are encoded by the name of
    the field: json, npy, npz, and pictures such as jpg and png. The same samples give the same bytes. The file gets its
    name when the `with` block ends; after an exception there is none.

    >>> import tarkit
    >>> with tarkit.TarWriter("new.tar") as out:
    ...     out.write("a/1", {"txt": "ten", "cls": 10, "json": {"width": 3}})
    >>> [(sample.key, dict(sample)) for sample in tarkit.open("new.tar")]
    [('a/1', {'txt': b'ten', 'cls': b'10', 'json': b'{"width": 3}'})]
    """

    def __init__(
        self,
        output: str | os.PathLike[str] | BinaryIO,
        *,
        compress: str | None = None,
        fsync: bool = False,
        mtime: int = 0,
    ) -> None:
        """Open the output.

        Args:
            output: a path, `"pipe:COMMAND"`, `"-"` for stdout, or a binary file object. A suffix such as `.tar.zst`
                compresses.
            compress: a codec, `"zst"` or `"gz:9"`, whatever the suffix.
            fsync: whether the file is on the disk before it gets its name.
            mtime: the time of all entries, in seconds since 1970.
        """
        opened = Output.named(output, compress, fsync)
        opened.check_time(mtime)
        self._encoder = _Encoder(mtime)
        self._names = NameChecks("give each sample its own key")
        self._writer = EntryWriter(opened.open())
        self.samples = 0

    def write(self, key: str, fields: Mapping[str, Value]) -> None:
        """Append a sample.

        Raises:
            TarkitError: the key or a field has a name that would be read otherwise, or the key was written before.
            TypeError: a value that has no encoding.
        """
        _, data, entries = self._encoder.encode(key, fields)
        for entry in entries:
            self._names.check(entry.name)
        self._writer.raw((data,), len(data))
        self.samples += 1

    def close(self) -> None:
        """End the archive and give the file its name."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)


class ShardWriter:
    """Write samples to numbered shards, each of which gets its name when it is complete.

    >>> import tarkit
    >>> with tarkit.ShardWriter("new-%04d.tar", count=2) as out:
    ...     for number in range(5):
    ...         out.write(f"{number:06d}", {"cls": number})
    >>> [(shard.name, shard.samples) for shard in out.shards]
    [('new-0000.tar', 2), ('new-0001.tar', 2), ('new-0002.tar', 1)]
    """

    def __init__(
        self,
        template: str,
        *,
        count: int | None = None,
        size: int | str | None = None,
        start: int = 0,
        force: bool = False,
        compress: str | None = None,
        fsync: bool = False,
        mtime: int = 0,
    ) -> None:
        """Begin a series.

        Args:
            template: the names: `"train-%06d.tar"`, `"train-{000..099}.tar"`.
            count: samples in a shard at most.
            size: bytes in a shard at most, as a number or `"500M"`; without count and size it is 1 GB.
            start: the number of the first shard.
            force: whether shards of these names that are there are replaced.
            compress, fsync, mtime: as for `TarWriter`.

        Raises:
            TarkitError: there are shards of this name, and no `force`.
        """
        self._encoder = _Encoder(mtime)
        self._names = NameChecks("give each sample its own key")
        output = shards_output(template, count, size, compress=compress, fsync=fsync, start=start, force=force)
        self._series = output.series(Run())

    @property
    def shards(self) -> list[Shard]:
        """The shards that are complete."""
        return self._series.done

    def write(self, key: str, fields: Mapping[str, Value]) -> None:
        """Append a sample, to a new shard if the one before is full. Raises what `TarWriter.write` does."""
        raw, data, entries = self._encoder.encode(key, fields)
        for entry in entries:
            self._names.check(entry.name)
        sample = TarSample(raw, HeldRange("sample", 0, data), entries, 0, len(data))
        self._series.add(sample)

    def close(self) -> None:
        """Complete the last shard."""
        self._series.close(self._names.samples)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._series.abort()
        else:
            self.close()
