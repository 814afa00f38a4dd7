"""Write samples from Python values: one archive, or shards."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import BinaryIO, Self
from weakref import finalize

from tarkit.arguments import checks_types, suggest_arguments
from tarkit.errors import TarkitError, TarkitWarning, Usage, frames_outside, show
from tarkit.pipeline.output import Output
from tarkit.pipeline.run import Run
from tarkit.pipeline.sample import Sample
from tarkit.samples.encoder import SampleEncoder, Value
from tarkit.samples.sample import Recent, TarSample
from tarkit.shards.split import SplitOptions
from tarkit.shards.writer import Shard, ShardsWriter
from tarkit.stores.store import parse_options
from tarkit.streams.ranges import HeldRange
from tarkit.tar.reader import Entry
from tarkit.tar.writer import EntryWriter

_NO_FIELDS: Mapping[str, Value] = MappingProxyType({})
_WHERE_READ = ("__url__", "__local_path__")  # items of samples of tarkit.loader and webdataset that are no fields


class _SampleWriter:
    """The base of the writers: names and values are checked, and after an error of the output nothing is written."""

    def __init__(self, name: str, encoder: SampleEncoder, target: EntryWriter | ShardsWriter) -> None:
        """`name` is that of the output in messages; `target` is aborted when the writer is not closed."""
        self._name = name
        self._encoder = encoder
        self._keys = Recent()
        self._failed = False
        self._content = 0
        caller = sys._getframe(frames_outside() - 1)
        place = caller.f_code.co_filename, caller.f_lineno
        self._output = _OpenOutput(name, target, os.getpid(), place)
        self._unclosed = finalize(self, self._output.drop)
        if (util := sys.modules.get("multiprocessing.util")) is not None:  # its forks end without functions of atexit
            util.Finalize(self, self._unclosed, exitpriority=0)

    @property
    def samples(self) -> int:
        """How many samples were written."""
        return self._output.samples

    @property
    def content(self) -> int:
        """The bytes of the contents of all fields that were written."""
        return self._content

    def write(self, key: str | Mapping[str, Value], fields: Mapping[str, Value] = _NO_FIELDS) -> None:
        """Append a sample. After a TarkitError or TypeError nothing of it is written, and the next one can follow.

        Args:
            key: the key; or a sample, whose key is its item `__key__`: a dict, a `Sample`, what a loader or webdataset
                gives.
            fields: the fields, by name.

        Raises:
            TarkitError: the key or a field has a name that would be read otherwise, or the key was written before.
            TypeError: a value that has no encoding, or a sample without a key.
        """
        if isinstance(key, Mapping):
            key, fields = _key_and_fields(key, fields)
        if not self._unclosed.alive:
            raise self._gave_up() if self._failed else Usage(f"{self._name}: the writer is closed")
        raw, data, entries = self._encoder.encode(key, fields)
        if self._keys.add(raw):
            raise TarkitError(f"the key {show(key)} was written before [scattered-sample]", "each sample has its own")
        try:
            self._append(raw, data, entries)
        except BaseException:
            self._fail()
            raise
        self._output.samples += 1
        self._content += sum(entry.size for entry in entries)

    def close(self) -> None:
        """Complete the output. Raises TarkitError if a sample could not be written."""
        if self._failed:
            raise self._gave_up()
        if self._unclosed.alive:
            try:
                self._complete()
            except BaseException:
                self._fail()
                raise
            self._unclosed.detach()

    def _append(self, raw: bytes, data: bytes, entries: list[Entry]) -> None:
        """Write a sample: its key, the bytes of its entries, and their positions in these."""
        raise NotImplementedError

    def _complete(self) -> None:
        raise NotImplementedError

    def _fail(self) -> None:
        self._failed = True
        self._give_up()

    def _give_up(self) -> None:
        """Abort the output, unless it was closed or aborted before."""
        if self._unclosed.detach() is not None:
            self._output.abort()

    def _gave_up(self) -> TarkitError:
        return TarkitError(f"{self._name}: was given up after an error", "write it again")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._give_up()


def _key_and_fields(sample: Mapping[str, Value], fields: Mapping[str, Value]) -> tuple[str, Mapping[str, Value]]:
    if fields is not _NO_FIELDS:
        raise TypeError("write takes a sample, or a key and fields")
    if isinstance(sample, Sample):
        return sample.key, sample
    if "__key__" not in sample:
        raise TypeError("the sample has no item __key__: write({'__key__': 'a/1', 'txt': ...}) or write('a/1', {...})")
    key = sample["__key__"]
    if not isinstance(key, str):
        raise TypeError(f"__key__ is a str, not {type(key).__name__}")
    return key, {name: value for name, value in sample.items() if name != "__key__" and name not in _WHERE_READ}


@dataclass(eq=False, repr=False)
class _OpenOutput:
    """The output of a writer, which outlives the writer if that is not closed.

    Attributes:
        name: its name for messages.
        target: what is aborted.
        pid: the process that opened it: a fork of that does nothing.
        place: the file and the line of the program that opened it.
        samples: how many samples were written.
    """

    name: str
    target: EntryWriter | ShardsWriter
    pid: int
    place: tuple[str, int]
    samples: int = 0

    def abort(self) -> None:
        """Abort the output."""
        if os.getpid() == self.pid:
            self.target.abort()

    def drop(self) -> None:
        """Abort the output of a writer that is gone, or left when the program ends, and warn."""
        if os.getpid() != self.pid:
            return
        try:
            self.target.abort()
        finally:
            done = sum(shard.samples for shard in self.target.done) if isinstance(self.target, ShardsWriter) else 0
            if lost := self.samples - done:
                words = f"the writer was never closed, lost samples: {lost} of {self.samples}"
                text = f"{self.name}: {words}; write in a `with` block, or call close()"
                warnings.warn_explicit(text, TarkitWarning, *self.place)


class TarWriter(_SampleWriter):
    """Write samples to one archive.

    bytes are written as they are, str as UTF-8, int and float as decimal text. Other values are encoded by the name of
    the field: json, npy, npz, pictures such as jpg and png, and so on. The same samples give the same bytes. The file
    gets its name when the `with` block ends, or by `close()`; after an exception there is none, and neither of a
    writer that is never closed, for which there is a warning.

    Attributes:
        samples: how many samples were written.
        content: the bytes of the contents of their fields.

    >>> import tarkit
    >>> with tarkit.TarWriter("new.tar") as out:
    ...     size = out.write("a/1", {"txt": "ten", "cls": 10, "json": {"width": 3}})
    >>> [(sample.key, dict(sample)) for sample in tarkit.open("new.tar")]
    [('a/1', {'txt': b'ten', 'cls': b'10', 'json': b'{"width": 3}'})]
    """

    @checks_types
    def __init__(
        self,
        output: str | os.PathLike[str] | BinaryIO,
        *,
        compress: str | None = None,
        format: str | None = None,
        fsync: bool = False,
        mtime: int = 0,
        allow_pickle: bool = False,
        encoder: bool = True,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        """Open the output.

        Args:
            output: a path, a URL, `"pipe:COMMAND"`, `"-"` for stdout, or a binary file object, which stays open. A
                suffix such as `.tar.zst` compresses.
            compress: a codec, `"zst"` or `"gz:9"`, whatever the suffix.
            format: `"tar"`, or `"cbors"` or `"msgpack"` for a sequence of maps; by default the suffix says which.
            fsync: whether the file is on the disk before it gets its name.
            mtime: the time of all entries, in seconds since 1970.
            allow_pickle: write values to fields such as pkl and pyd as pickles.
            encoder: whether values are encoded; if not, only bytes are taken.
            storage_options: how a URL is reached, as for `tarkit.open`.
        """
        samples = SampleEncoder(mtime, allow_pickle, encoder)
        options = parse_options(storage_options)
        opened = Output.from_argument(output, compress, fsync, options=options, format=format)
        opened.check_time(mtime)
        self._writer = EntryWriter(opened.open())
        super().__init__(opened.location.name, samples, self._writer)

    def _append(self, raw: bytes, data: bytes, entries: list[Entry]) -> None:
        self._writer.raw((data,), len(data))

    def _complete(self) -> None:
        self._writer.close()


class ShardWriter(_SampleWriter):
    """Write samples to numbered shards, each of which gets its name when it is complete.

    The last shard is complete when the `with` block ends, or by `close()`. A writer that is never closed loses it,
    with a warning.

    Attributes:
        samples: how many samples were written.
        content: the bytes of the contents of their fields.

    >>> import tarkit
    >>> with tarkit.ShardWriter("new-%04d.tar", count=2) as out:
    ...     for number in range(5):
    ...         size = out.write(f"{number:06d}", {"cls": number})
    >>> [(shard.name, shard.samples) for shard in out.shards]
    [('new-0000.tar', 2), ('new-0001.tar', 2), ('new-0002.tar', 1)]
    """

    @suggest_arguments("tarkit.ShardWriter", maxcount="count", maxsize="size", start_shard="start")
    @checks_types
    def __init__(
        self,
        template: str | os.PathLike[str],
        *,
        count: int | None = None,
        size: int | str | None = None,
        start: int = 0,
        force: bool = False,
        compress: str | None = None,
        fsync: bool = False,
        mtime: int = 0,
        allow_pickle: bool = False,
        encoder: bool = True,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        """Begin a series.

        Args:
            template: the names: `"train-%06d.tar"`, `"train-{000..099}.tar"`.
            count: samples in a shard at most.
            size: bytes in a shard at most, as a number or `"500M"`; without count and size it is 1 GB.
            start: the number of the first shard.
            force: whether shards of these names that are there are replaced.
            compress, fsync, mtime, allow_pickle, encoder, storage_options: as for `TarWriter`.

        Raises:
            TarkitError: there are shards of this name, and no `force`.
        """
        template = os.fspath(template)
        options = SplitOptions.of(locals())
        samples = SampleEncoder(mtime, allow_pickle, encoder)
        run = Run()
        self._shards = options.open(run)
        self._shards.output.check_time(mtime, template)
        self._writer = self._shards.open(run)
        super().__init__(template, samples, self._writer)

    @property
    def shards(self) -> list[Shard]:
        """The shards that are complete."""
        return self._writer.done

    def _append(self, raw: bytes, data: bytes, entries: list[Entry]) -> None:
        if self._writer.add(TarSample(raw, HeldRange("sample", 0, data), entries, 0, len(data))):
            raise AssertionError("a series without a limit took no sample")

    def _complete(self) -> None:
        self._writer.close(self.samples)
        self._shards.write_index(self._writer)
