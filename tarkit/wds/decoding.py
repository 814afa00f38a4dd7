"""`decode` of webdataset's pipelines: functions and forms of pictures, then tarkit's table of fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from tarkit.decoding.decoder import OTHERS, DecodeRule, FieldDecoder
from tarkit.errors import Usage
from tarkit.media.coding import KINDS
from tarkit.wds.filters import FUNCTIONS, Handler, Samples, reraise_exception, stage

FieldHandler = Callable[[str, Any], Any]
"""A function of `.name` of a field and its bytes; it returns a value, a `Continue`, or None to leave it to the next."""

_PICTURES = [field for kind in KINDS if kind.name == "picture" for field in kind.fields.split()]


class Continue(NamedTuple):
    """What a handler returns to go on with another name and other bytes."""

    key: str
    data: Any


class handle_extension:
    """Decode fields whose names end in one of these extensions, with blanks between them, by a function of bytes."""

    def __init__(self, extensions: str, function: Callable[[bytes], Any]) -> None:
        self._ends = tuple("." + word.lower().removeprefix(".") for word in extensions.split())
        self._function = function

    def __call__(self, name: str, data: Any) -> Any:
        """Return the value; None for another field."""
        return self._function(data) if name.lower().endswith(self._ends) else None


class SampleDecoder:
    """Decodes the fields of samples that are dicts."""

    def __init__(
        self,
        handlers: Sequence[FieldHandler | str],
        pre: Iterable[FieldHandler] | None = None,
        post: Iterable[FieldHandler] | None = None,
        only: str | Collection[str] | None = None,
        partial: bool = False,
        allow_pickle: bool = False,
    ) -> None:
        """Set the decoders.

        Args:
            handlers: functions, which are asked in turn, and forms of pictures, such as `"rgb"`, of which one counts.
                Without a form pictures stay bytes.
            pre: functions that are asked before `handlers`.
            post: functions that are asked behind the table of fields.
            only: the names of the fields that are decoded; others stay bytes.
            partial: whether values that are no bytes pass.
            allow_pickle: decode pickles too, which can run any code.

        Raises:
            Usage: two forms of pictures, or one that is not known.
        """
        forms = [handler for handler in handlers if isinstance(handler, str)]
        if len(forms) > 1:
            raise Usage(f"decode has two forms of pictures: {' and '.join(forms)}")
        pictures: DecodeRule = forms[0] if forms else None
        self._table = FieldDecoder({OTHERS: True, **dict.fromkeys(_PICTURES, pictures)}, allow_pickle)
        self._handlers = [*(pre or ()), *(handler for handler in handlers if not isinstance(handler, str))]
        self._post = list(post or ())
        self._only = None if only is None else {*(only.split() if isinstance(only, str) else only)}
        self._partial = partial

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Return a sample with decoded values. Fields that begin with `__` stay, as text if they are UTF-8."""
        decoded = {}
        for name, value in sample.items():
            if name.startswith("__"):
                decoded[name] = value.decode() if isinstance(value, bytes) else value
            elif self._only is not None and name not in self._only:
                decoded[name] = value
            elif isinstance(value, bytes):
                decoded[name] = self._decoded("." + name, value)
            elif self._partial:
                decoded[name] = value
            else:
                raise TypeError(
                    f"the field {name} is {type(value).__name__}, not bytes: decode it once, or partial=True"
                )
        return decoded

    def _decoded(self, name: str, data: Any) -> Any:
        for handler in (*self._handlers, self._by_table, *self._post):
            value = handler(name, data)
            if type(value) is Continue:
                name, data = value
            elif value is not None:
                return value
        return data

    def _by_table(self, name: str, data: Any) -> Any:
        value = self._table.decode(name[1:], data)
        return None if value is data else value


@stage
def decode(
    samples: Samples, *args: FieldHandler | str, handler: Handler = reraise_exception, **options: Any
) -> Samples:
    """Decode the fields of samples; see `SampleDecoder`."""
    return FUNCTIONS["map"](samples, SampleDecoder(args, **options), handler)  # type: ignore[return-value]
