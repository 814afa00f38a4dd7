"""Calls of a Python function: its arguments, the checks of what it returns, and the new samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.errors import MissingLibrary, TarkitError, show, spell
from tarkit.proc import result
from tarkit.proc.job import WHOLE, Job, WorkFailed
from tarkit.proc.loader import FunctionLoader, in_words, kind_of, tail_of, type_with_article
from tarkit.proc.result import SampleBuilder
from tarkit.samples.names import FieldDict
from tarkit.samples.sample import TarSample
from tarkit.streams.ranges import HeldRange
from tarkit.tar.reader import Raw

if TYPE_CHECKING:
    from tarkit.pipeline.sample import Sample

KEY = "__key__"

Encode = Callable[[str, Any], bytes]
"""Encodes a field and a value that the function returned."""
Returned = tuple[str, list[tuple[str, bytes | None]]]
"""A key, and fields; None: the content is that of the input."""
Piece = tuple[str, int, bytes, list[tuple[bytes, list[Raw]]]]
"""The name of an archive, an offset, the bytes from there on, and keys and entries of the samples in them."""
Sent = tuple[str, int, bytes, bytes, list[Raw]]
"""The same with the key and the entries of one sample."""
NewSample = tuple[bytes, list[Raw], bytes] | None
"""Key, entries and bytes; None: the input sample."""
Made = list[NewSample]
"""The new samples of one sample."""


def name_of(function: object) -> str:
    """Return what messages call a function, or the name of one."""
    return function if isinstance(function, str) else str(getattr(function, "__qualname__", type(function).__name__))


class _Call(NamedTuple):
    """A sample, and what the function gets of it. It is `plain` if all fields are regular files."""

    sent: Sent
    key: str
    raw: result.Fields
    plain: bool
    argument: Mapping[str, Any]
    encode: Encode


class SampleFunction:
    """Makes new samples of samples with a function, which is loaded here; `init` is called.

    Args:
        function: a callable, or MODULE:FUNCTION or FILE.py:FUNCTION.
        init: is called once, before the function; of the same forms.
        decode: decode the fields and encode the results by the names of fields.
        pickles: decode pickles too.
        batches: the function takes and returns lists.
        mtime: time of new entries, in seconds since 1970.
        wrap: makes the argument of the function from a sample, and its bytes if it is small. The argument encodes the
            values that are returned, and its attribute `key` is the key. Without it the argument is a dict of fields
            and `__key__`, and bytes and str are taken.
        exact: refuse values that their fields would hold with a loss.

    Raises:
        TarkitError: one of them cannot be loaded, or `init` raised an exception, which is the cause.
    """

    def __init__(
        self,
        function: str | Callable[..., Any],
        init: str | Callable[[], Any] | None = None,
        *,
        decode: bool = False,
        pickles: bool = False,
        batches: bool = False,
        mtime: int | None = 0,
        wrap: Callable[[TarSample, bytes | None], Sample] | None = None,
        exact: bool = False,
    ) -> None:
        self.batches = batches
        self._wrap = wrap
        self._exact = exact
        self._builder = SampleBuilder(mtime)
        self._coder = None
        if decode:
            import json  # noqa: F401 - before the user's directory is searched for modules

            from tarkit.media.coding import Coder

            self._coder = Coder(pickles)
        load = FunctionLoader()
        called, start = (load(name) if isinstance(name, str) else name for name in (function, init))
        assert called is not None
        self._function: Callable[..., Any] = called
        if start is not None:
            try:
                start()
            except BaseException as error:
                raise TarkitError(f"{name_of(init)} raised {in_words(error)}") from error

    def __call__(self, samples: list[Sent]) -> list[Made | WorkFailed]:
        """Return what the function makes of one sample, or of each sample of a batch, where one may fail alone.

        Raises:
            WorkFailed: the sample cannot be passed, or what the function returned for all is invalid.
            MissingLibrary: a value cannot be decoded or encoded.
            BaseException: whatever the function raises.
        """
        if not self.batches:
            call = self._call(samples[0])
            return [self._new(call, self._function(call.argument))]
        calls = [_attempt(self._call, sent) for sent in samples]
        good = [call for call in calls if isinstance(call, _Call)]
        made = iter(self._batch(good) if good else [])
        return [next(made) if isinstance(call, _Call) else call for call in calls]

    def _batch(self, calls: list[_Call]) -> list[Made | WorkFailed]:
        returned = self._function([call.argument for call in calls])
        if isinstance(returned, Mapping) or not _iterable(returned):
            raise WorkFailed(f"returned {type_with_article(returned)} for a batch, not a list")
        made: list[Made | WorkFailed] = []
        for item in returned:
            if len(made) == len(calls):
                raise WorkFailed(f"returned more items than the batch of {len(calls)} has")
            made.append(_attempt(self._new, calls[len(made)], item))
        if len(made) < len(calls):
            raise WorkFailed(f"returned {len(made)} items for a batch of {len(calls)}")
        return made

    def _call(self, sent: Sent) -> _Call:
        raw, plain = _read(sent)
        *_, name, _ = sent
        key = name.decode("utf-8", "surrogateescape")
        argument: Mapping[str, Any]
        encode: Encode
        if self._wrap is not None:
            sample = _job(sent).sample
            small = sample.stop - sample.start <= WHOLE
            argument = self._wrap(sample, sample.source.read(sample.start, sample.stop) if small else None)
            encode = argument._encode_value
        elif self._coder is None:
            return _Call(sent, key, raw, plain, FieldDict({KEY: key, **raw}), _plain)
        else:
            from tarkit.media.coding import Coded

            try:
                coded = Coded(self._coder, raw)
            except MissingLibrary:
                raise
            except TarkitError as error:
                raise WorkFailed(str(error)) from None
            argument, encode = FieldDict({KEY: key, **coded.values}), coded.encode
        return _Call(sent, key, raw, plain, argument, partial(_exact, encode, raw) if self._exact else encode)

    def _new(self, call: _Call, returned: Any) -> Made:
        """Return the new samples for what the function returned for a sample."""
        made = _returned(returned, call, self._wrap is not None)
        _, start, data, key, entries = call.sent
        if call.plain and len(made) == 1 and made[0][0] == call.key:
            try:
                mtime = self._builder.mtime or 0
                return [result.build_plain(key, entries, data, start, call.raw, made[0][1], mtime)]
            except ValueError:
                pass  # a name that no entry can have: the builder reports it
        job = _job(call.sent)
        return [self._built(job, key, fields, number == 0) for number, (key, fields) in enumerate(made)]

    def _built(self, job: Job, key: str, fields: list[tuple[str, bytes | None]], first: bool) -> NewSample:
        inputs = {entry.field: entry for entry in job.inputs()}
        raw = _raw(key)
        if first and raw == job.key and len(fields) == len(inputs) and all(data is None for _, data in fields):
            return None
        result.check_key(raw)
        contents = [(name := _raw(field), inputs[name].read() if data is None else data) for field, data in fields]
        sample = self._builder(job, raw, contents, first=first)
        if sample is job.sample:
            return None
        return raw, list(map(tuple, sample.entries)), sample.source.read(0, sample.stop)  # type: ignore[arg-type]


def each_sample(pieces: list[Piece]) -> Iterator[Sent]:
    """Yield the samples in pieces one by one."""
    for name, start, data, samples in pieces:
        for key, entries in samples:
            yield name, start, data, key, entries


def failure_of(error: BaseException) -> tuple[str, bytes]:
    """Return the reason and the tail of a failure, for `Failure`."""
    if isinstance(error, WorkFailed):
        return error.failure.reason, b""
    return f"raised {kind_of(error)}", tail_of(error)


def _read(sent: Sent) -> tuple[result.Fields, bool]:
    """Return the fields, and whether the sample is plain; raises WorkFailed for one that no dict can hold."""
    _, start, data, key, entries = sent
    plain = result.plain_fields(key, entries, data, start) if entries else None
    fields = plain
    if fields is None:
        inputs = _job(sent).inputs()
        fields = {entry.field.decode("utf-8", "surrogateescape"): entry.read() for entry in inputs}
        if len(fields) < len(inputs):
            raise WorkFailed("has two fields of the same name")
    if KEY in fields:
        raise WorkFailed(f"has a field named {KEY}, which is reserved for the key")
    return fields, plain is not None


def _job(sent: Sent) -> Job:
    name, start, data, key, entries = sent
    return Job(0, TarSample(key, HeldRange(name, start, data), entries, *result.extent(entries)))


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or the failure of the sample that it raises."""
    try:
        return function(*arguments)
    except WorkFailed as error:
        return error


# ---- What the function returned


def _exact(encode: Encode, raw: dict[str, bytes], field: str, value: Any) -> bytes:
    """Return the bytes of a value for a field; raise TarkitError for a changed one that they hold with a loss."""
    data = encode(field, value)
    if not isinstance(value, (bytes, bytearray, memoryview, str)) and data not in raw.values():
        from tarkit.media.coding import is_lossy

        if is_lossy(field, value):
            message = f"field {show(field)} would be compressed with a loss, and the loader would decode that"
            hint = "call the function as transform= of the loader, which encodes nothing; 'png' or 'npy' would keep all"
            raise TarkitError(message, hint)
    return data


def _returned(returned: Any, call: _Call, named: bool) -> list[Returned]:
    """Check what the function returned for one sample, item by item as a generator makes them.

    With `named`, the attribute `key` of a result is its key unless it has an item `__key__`.
    """
    if returned is None:
        return []
    if isinstance(returned, Mapping):
        return [_one(returned, call, named)]
    if not _iterable(returned):
        raise WorkFailed(f"returned {type_with_article(returned)}, not a dict, several dicts or None")
    made: dict[str, Returned] = {}
    for item in returned:
        if not isinstance(item, Mapping):
            raise WorkFailed(f"returned {type_with_article(item)} among several, not a dict")
        one = _one(item, call, named)
        if made.setdefault(one[0], one) is not one:
            raise WorkFailed(f"returned two samples with the key {show(one[0])}: set another {KEY} for each")
    return list(made.values())


def _one(item: Mapping[Any, Any], call: _Call, named: bool) -> Returned:
    fields: list[tuple[str, bytes | None]] = []
    key, raw, encode = call.key, call.raw, call.encode
    own = getattr(item, "key", None) if named else None
    if isinstance(own, str):
        key = own
    for field, value in item.items():
        if field == KEY:
            if type(value) is not str:
                raise WorkFailed(f"returned {type_with_article(value)} as {KEY}, not a str")
            key = value
            continue
        original = raw.get(field)
        if value is original and original is not None:
            fields.append((field, None))
            continue
        if original is None:
            _check_field(field)
        try:
            data = encode(field, value)
        except MissingLibrary:
            raise
        except TarkitError as error:
            raise WorkFailed(f"{error} ({error.hint})" if error.hint else str(error)) from None
        fields.append((field, None if data is original else data))
    if not fields:
        raise WorkFailed("returned a sample without fields; return None for no sample")
    return key, fields


def _check_field(field: Any) -> None:
    if not isinstance(field, str):
        raise WorkFailed(f"returned a field whose name is {type_with_article(field)}, not a str")
    if not field or "/" in field or "\0" in field:
        raise WorkFailed(f"returned a field with the invalid name {show(field)}")
    if field.startswith("__") and field.endswith("__"):
        raise WorkFailed(f"returned a field named {show(field)}; the only such name is {KEY}")


def _plain(field: str, value: Any) -> bytes:
    """Return the bytes of a value that is not to be encoded."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise WorkFailed(f"field {show(field)}: {error}") from None
    message = f"field {show(field)} is {type_with_article(value)}, not bytes or str"
    raise WorkFailed(
        message if value is None else f"{message}; {spell('decode')} encodes other values by the name of the field"
    )


def _iterable(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, memoryview))
