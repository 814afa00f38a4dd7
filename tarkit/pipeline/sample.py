"""A sample as Python sees it: a read-only mapping from the names of fields to their bytes."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, Literal, Self, cast, overload

from tarkit.errors import MissingLibrary, Problem, TarkitError, Unsupported, show
from tarkit.samples.lookup import column_words
from tarkit.samples.names import spelled
from tarkit.samples.sample import TarSample
from tarkit.streams.ranges import Held, HeldRange
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry, Raw

if TYPE_CHECKING:
    from tarkit.decoding.decoder import DecodeSpec, FieldDecoder
    from tarkit.samples.items import SampleItems

WHOLE = 1 << 20  # bytes; a sample up to this size is read as a whole

UNDECODABLE = "tarkit.loader leaves such samples out with tarkit.open(..., skip='bad-field')"


class Sample(Mapping[str, bytes]):
    """One sample: `sample["jpg"]` is the content of its field `jpg`, as bytes.

    A sample of at most 1 MiB is held in memory. The fields of a larger one are read when they are requested: from a
    file at any time, from a stream until the next sample is requested.

    A name means the field that is spelled so, else the first one that differs only in case; iterating gives the names
    as the archive has them.
    Entries without a key, such as directories, are no fields. Of two fields with the same name the first counts.
    `sample["__key__"]` is the key and `sample["__url__"]` the name of the archive, as in the dicts of a loader;
    iterating gives the fields alone. A pickled sample has its bytes with it.
    As a str a sample is the output of the command `show`: a line for the sample, and one for each entry.

    >>> import tarkit
    >>> sample = tarkit.open("a.tar").head()[0]
    >>> sample.key, list(sample), sample["cls"], sample.get("txt")
    ('a/0', ['jpg', 'cls'], b'3', None)

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
        self._entries: dict[str, Entry] | None = None
        self._contents: dict[str, bytes] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Return the sample with its bytes, so that a copy in another process needs no archive."""
        sample, data = self._sample, self._data
        if data is None:
            data = sample.source.read(sample.start, sample.stop)
            sample.source.unchanged()
        entries = list(map(tuple, sample.raw))
        return _copied, (type(self), self._more, sample.key, self.shard, entries, sample.plain, sample.start, data)

    @property
    def _more(self) -> tuple[Any, ...]:
        """What is given to the constructor beside the sample and its bytes."""
        return ()

    @property
    def key(self) -> str:
        """The key."""
        return (self._sample.key or b"").decode("utf-8", "surrogateescape")

    @property
    def shard(self) -> str:
        """The name of the archive that it was read from."""
        sample = self._sample
        while sample.base is not None:
            sample = sample.base
        return sample.source.name

    @property
    def offset(self) -> int:
        """Where it begins in that archive, in bytes of the tar."""
        return self._sample.start

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each field's content, in bytes, by its name; reads no content. A link to nothing has size 0."""
        return {name: self._size(raw) for name, raw in self._index().items()}

    @overload
    def __getitem__(self, field: Literal["__key__", "__url__"]) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self, field: str) -> bytes: ...
    def __getitem__(self, field: str) -> bytes | str:
        """Return the content of a field, the key for `__key__`, or the name of the archive for `__url__`.

        Raises:
            KeyError: the sample has no such field.
            Problem: the field has no readable content: it is a sparse file, or a link to a file outside the sample.
        """
        if field in ("__key__", "__url__") and self._spelled(field) is None:
            return self.key if field == "__key__" else self.shard
        return self._content(field)

    def _content(self, field: str) -> bytes:
        """Return the content of a field; raises as `[]` does."""
        contents = self._small()
        if field in contents:
            return contents[field]
        name = self._spelled(field)
        if name is None:
            words = f"{field}: no such field; the sample {self.key} has {', '.join(self.keys())}"
            raise KeyError(words + column_words(self._sample, [field]))
        return contents[name] if contents else self._read(self._index()[name])

    def __contains__(self, field: object) -> bool:
        return isinstance(field, str) and self._spelled(field) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._small() or self._index())

    def __len__(self) -> int:
        return len(self._small() or self._index())

    def __repr__(self) -> str:
        return f"<tarkit.Sample {self.key!r}: {', '.join(self)}>"

    def __str__(self) -> str:
        from tarkit.samples.items_text import sample_lines

        return sample_lines(self._items()).removesuffix("\n")

    def describe(self) -> dict[str, Any]:
        """Return a description of the sample as values of JSON, as `tarkit show --json` prints it.

        A few kilobytes of each field are read. Names in it are escaped: `\\xNN` is a byte that is not printable text.

        >>> import tarkit
        >>> tarkit.open("a.tar").get("a/0").describe()["fields"][1]
        {'name': 'a/0.cls', 'field': 'cls', 'size': 1, 'kind': 'text', 'text': '3', 'cut': False}
        """
        from tarkit.samples.items_text import sample_record

        return sample_record(self._items())

    def decode(self, field: str, how: DecodeSpec = True, *, allow_pickle: bool = False) -> Any:
        """Return the value of a field, decoded by its name; `how` and `allow_pickle` are as for `Dataset.decode`.

        Raises:
            KeyError: the sample has no such field.
            Problem: its content cannot be decoded: `bad-field`.
            MissingLibrary: a library is not installed.

        >>> import tarkit
        >>> tarkit.open("a.tar").head()[0].decode("cls")
        3
        """
        from tarkit.decoding.decoder import parse_decode

        return self._decoded_by(parse_decode(how, allow_pickle), field, self._content(field))

    def _decoded_by(self, decoder: FieldDecoder, field: str, data: bytes) -> Any:
        """Return the value of a field. Raises Problem, which names the sample, if it cannot be decoded."""
        try:
            return decoder.decode(field, data)
        except MissingLibrary:
            raise
        except TarkitError as error:
            message = f"{show(self._sample.key or b'')}: {error}"
            hint = error.hint or UNDECODABLE
            raise Problem("bad-field", self.shard, self.offset, message, hint) from error.__cause__

    def _encode_value(self, field: str, value: object) -> bytes:
        """Return the bytes of a value for a field of this name, as `TarWriter` writes it.

        Raises:
            TypeError: a value that has no encoding.
            TarkitError: a value that the field cannot hold.
        """
        from tarkit.samples.encoder import encode_value

        return encode_value(field, value)

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
        return spelled(self.keys(), field)

    def _small(self) -> dict[str, bytes]:
        """Return the contents of all fields of a small sample that consists of plain files; empty for any other."""
        contents = self._contents
        if contents is None:
            sample, data = self._sample, self._data
            contents = self._contents = {} if data is None or not sample.plain else sample.plain_contents(data)
        return contents

    def _load(self) -> None:
        """Read all fields, so that another thread needs no source, whose window is for one thread. Raises Problem."""
        if not self._small():
            self._contents = {name: self._read(entry) for name, entry in self._index().items()}

    def _index(self) -> dict[str, Entry]:
        """Return the entry of each field, by name; of two with one name it is the first."""
        if self._entries is None:
            from tarkit.samples.lookup import FieldLookup

            fields = FieldLookup(self._sample).fields
            self._entries = {name.decode("utf-8", "surrogateescape"): Entry._make(raw) for name, raw in fields.items()}
        return self._entries

    def _located(self, entry: Entry) -> Entry:
        """Return the entry that has the content of a field; raise Problem when there is none."""
        if entry.type in block.FILES and not entry.sparse:
            return entry
        from tarkit.samples.lookup import FieldLookup

        return FieldLookup(self._sample).located(entry.name[len(self._sample.key or b"") + 1 :], entry)

    def _size(self, entry: Entry) -> int:
        try:
            return entry.real if entry.sparse else self._located(entry).size
        except Problem:
            return 0

    def _read(self, entry: Entry) -> bytes:
        sample, located = self._sample, self._located(entry)
        start, stop = located.data, located.data + located.size
        if self._data is not None:
            return self._data[start - sample.start : stop - sample.start]
        source = sample.source
        content = source.read(start, stop)
        source.unchanged()
        return content

    def _items(self) -> SampleItems:
        """Return the description of the sample and of its entries."""
        from tarkit.samples.items import describe_sample

        sample, source = self._sample, self._sample.source
        if self._data is not None:
            held = HeldRange(source.name, sample.start, self._data)
            sample = TarSample(sample.key, held, sample.raw, sample.start, sample.stop)
        seen = describe_sample(sample)
        if self._data is None:
            source.unchanged()
        return seen

    def _keep(self) -> Self:
        """Return the sample, which stays readable after the next one is read."""
        sample = self._sample
        if self._data is None and not sample.source.seekable:
            self._data = sample.source.read(sample.start, sample.stop)
        return self

    def _undecoded(self) -> Self:
        """Return the sample without values that it has decoded, which may have been changed."""
        return self


class DecodedSample(Sample):
    """One sample whose values are decoded: `sample["jpg"]` is a picture, `sample.raw("jpg")` its bytes.

    A field is decoded when it is looked up for the first time. Iterating over `values` or `items` decodes all.

    >>> import tarkit
    >>> sample = tarkit.open("a.tar", decode=True).head()[0]
    >>> sample["cls"], sample.raw("cls")
    (3, b'3')
    """

    __slots__ = ("_decoder", "_values")

    def __init__(self, sample: TarSample, data: bytes | None, decoder: FieldDecoder) -> None:
        """See `Sample`; `decoder` decodes the fields."""
        super().__init__(sample, data)
        self._decoder = decoder
        self._values: dict[str, Any] = {}

    @property
    def _more(self) -> tuple[Any, ...]:
        return (self._decoder,)

    def raw(self, field: str) -> bytes:
        """Return the content of a field as bytes. Raises KeyError if the sample has no such field."""
        return self._content(field)

    def __getitem__(self, field: str) -> Any:
        """Return the value of a field, the key for `__key__`, or the name of the archive for `__url__`.

        Raises:
            KeyError: the sample has no such field.
            Problem: the content cannot be decoded: `bad-field`.
            MissingLibrary: a library is not installed.
        """
        if field in ("__key__", "__url__") and self._spelled(field) is None:
            return self.key if field == "__key__" else self.shard
        name = field if field in self._values else self._spelled(field) or field
        if name not in self._values:
            self._values[name] = self._decoded_by(self._decoder, name, self._content(name))
        return self._values[name]

    def _undecoded(self) -> Self:
        """Return the sample without values that it has decoded, which may have been changed."""
        self._values.clear()
        return self

    def __repr__(self) -> str:
        return super().__repr__().replace("Sample", "DecodedSample", 1)

    def values(self) -> ValuesView[Any]:
        """The values of the fields, in order."""
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:
        """The names of the fields and their values, in order."""
        return ItemsView(self)

    def _encode_value(self, field: str, value: object) -> bytes:
        """Return the bytes of a value for a field: the original ones if it equals a value of this sample.

        Raises:
            TypeError: a value that has no encoding.
            TarkitError: a value that the field cannot hold.
        """
        from tarkit.samples.encoder import encode_value

        origins = [field] if field in self.keys() else []
        origins += [name for name, other in self._values.items() if other is value and name != field]
        for origin in origins:
            original = self._decoder.encode(field, value, origin, self._content(origin))
            if original is not None:
                return original
        return encode_value(field, value, self._decoder.coder)


def _copied(
    kind: Callable[..., Sample],
    more: tuple[Any, ...],
    key: bytes | None,
    shard: str,
    entries: list[Raw],
    plain: bool,
    start: int,
    data: bytes,
) -> Sample:
    """Return a sample that was pickled."""
    sample = TarSample(key, HeldRange(shard, start, data), entries, start, start + len(data))
    sample.plain = plain
    return kind(sample, data, *more)


class _Passed(Held):
    """The source of a sample in a stream from which the next sample was read."""

    def __init__(self, sample: TarSample) -> None:
        super().__init__(sample.source.name, sample.start, sample.stop)
        self._key = sample.key or b""

    def read(self, start: int, stop: int) -> bytes:
        """Raise Unsupported."""
        message = f"{self.name}: at {self.start}: the sample {show(self._key)} of a stream has been passed"
        raise Unsupported(message, "dict(sample) keeps its fields; they can be read until the next sample is requested")


def wrap_samples(
    samples: Iterator[TarSample], wrap: Callable[[TarSample, bytes | None], Sample] = Sample
) -> Iterator[Sample]:
    """Yield the samples of a run as Python sees them, without entries that belong to no sample.

    A large one of a stream can be read until the next is requested. `wrap` makes a sample of one and its bytes.
    """
    source: Source | None = None
    for sample in samples:
        if sample.key is None:
            continue
        if sample.more is not None:
            sample.complete()
        if sample.base is not None:
            made = wrap(sample, None)
            made._contents = sample.plain_contents() if sample.extent <= WHOLE else None
            yield made
            continue
        if sample.source is not source:
            source = sample.source
            read = source.recent
        start, stop = sample.start, sample.stop
        if stop - start <= WHOLE:
            yield wrap(sample, read(start, stop) if sample.data is None else sample.data)
        else:
            yield wrap(sample, None)
            if not source.seekable:
                sample.source = cast(Source, _Passed(sample))  # its bytes are no longer held
