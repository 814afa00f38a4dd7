"""Decode the fields of samples for Python: by the table of `coding`, pictures in a chosen form, or by functions.

A field is decoded by the rule with the longest name that its own name ends with, as `handle_extension` of webdataset
compares them: `png` and `seg.png` are rules for the field `left.seg.png`. A field whose name ends in `.gz` is
decompressed first, unless a rule names it with that ending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tarkit.decoding.forms import check_form
from tarkit.decoding.picture import PictureDecoder
from tarkit.errors import MissingLibrary, Usage, show
from tarkit.media.coding import MOST_NAMES, Coder, name_error
from tarkit.media.coding_gzip import expand
from tarkit.media.equality import equal
from tarkit.media.limits import compressed_field

DecodeRule = Callable[[bytes], Any] | bool | str | None
"""A function of the bytes of a field; True for the table, None or False for bytes; or the name of a picture form."""

DecodeSpec = bool | str | Mapping[str, DecodeRule]
"""True for the table with Pillow images; the name of a form of pictures; or rules by the endings of names."""

OTHERS = "*"  # the rule of the fields that no other rule names


def parse_decode(spec: DecodeSpec, allow_pickle: bool = False) -> FieldDecoder:
    """Return a decoder.

    Args:
        spec: True, or the form of pictures (`"pil"`, `"rgb8"`, `"torchrgb"` and so on, see `forms.FORMS`) for
            all fields by the table of `coding`; or a dict from names of fields, several with spaces between them, to
            their rules, where `"*"` stands for all other fields, which are by default decoded by the table.
        allow_pickle: whether pickles, which can run any code, are decoded too.

    Raises:
        Usage: an unknown form of pictures, or a name with two rules.
        TypeError: `spec`, or a rule, is of another type.
    """
    if spec is True or isinstance(spec, str):
        return FieldDecoder({OTHERS: spec}, allow_pickle)
    if not isinstance(spec, Mapping):
        if spec is False:
            raise Usage("decode=False decodes nothing: leave it out, and the fields are bytes")
        raise TypeError(f"decode takes True, the name of a form of pictures, or a dict, not {type(spec).__name__}")
    rules: dict[str, DecodeRule] = {}
    for names, rule in spec.items():
        for name in names.lower().split():
            if rules.setdefault(name.removeprefix("."), rule) is not rule:
                raise Usage(f"decode has two rules for {show(name)}")
    return FieldDecoder(rules, allow_pickle)


class FieldDecoder:
    """Decodes fields by rules. It can be pickled if the functions among its rules can.

    Attributes:
        coder: decodes and encodes by the table.
    """

    def __init__(self, rules: Mapping[str, DecodeRule], allow_pickle: bool = False) -> None:
        """See `parse_decode`, which is the way to make one."""
        self._rules = dict(rules)
        self._default = self._rules.pop(OTHERS, True)
        self.coder = Coder(allow_pickle)
        self._functions: dict[str, Callable[[bytes], Any] | None] = {}
        for rule in (*self._rules.values(), self._default):
            _check_rule(rule)

    def decode(self, field: str, data: bytes) -> Any:
        """Return the value of a field. Raises TarkitError, with the field in its message, if it cannot be decoded."""
        function = self._function(field)
        if function is None:
            return data
        try:
            return function(data)
        except MissingLibrary:
            raise
        except Exception as error:
            raise name_error(field, "cannot be decoded", error) from error

    def encode(self, field: str, value: Any, origin: str, original: bytes) -> bytes | None:
        """Return the original bytes if a value equals what they decode to, else None.

        They may be of a field `origin` with another name, if the table writes both alike. The original is decoded once
        more, since the value may have been changed in place.
        """
        if isinstance(value, (bytes, bytearray, memoryview)):
            return None
        if field != origin and self.coder.kind(field) is not self.coder.kind(origin):
            return None
        kind, function = self.coder.kind(origin), self._function(origin)
        try:
            if kind is not None and function is kind.decode:
                kept = kind.equals(value, original)
            else:
                kept = function is not None and equal(value, function(original))
        except MissingLibrary:
            raise
        except Exception:  # a value of another type: it can be encoded, or the error says why not
            return None
        return original if kept else None

    def _function(self, field: str) -> Callable[[bytes], Any] | None:
        """Return the function that decodes a field, None for one that stays bytes."""
        try:
            return self._functions[field]
        except KeyError:
            if len(self._functions) >= MOST_NAMES:
                self._functions.clear()
            function = self._functions[field] = self._find(field.lower())
            return function  # another thread may clear the dict

    def _find(self, name: str) -> Callable[[bytes], Any] | None:
        """Return the function for a field with this name in lower case; None for one that stays bytes."""
        dot, rest = ".", name
        while dot:
            if rest in self._rules:
                return self._by_rule(self._rules[rest], name, named=True)
            _, dot, rest = rest.partition(".")
        if name.endswith(".gz"):
            inner = self._find(name[:-3])
            return None if inner is None else partial(_expand_and, inner)
        return self._by_rule(self._default, name, named=False)

    def _by_rule(self, rule: DecodeRule, name: str, named: bool) -> Callable[[bytes], Any] | None:
        """Return the function of a rule; `named` says whether the rule names the field, or holds for all others."""
        if rule is None or rule is False:
            return None
        if not isinstance(rule, (bool, str)):
            return rule
        if name.endswith(".gz"):
            inner = self._by_rule(rule, name[:-3], named)
            return None if inner is None else partial(_expand_and, inner)
        kind = self.coder.kind(name)
        if (kind is not None and kind.name == "picture") or (named and isinstance(rule, str)):
            return PictureDecoder("image" if rule is True else rule)
        return None if kind is None else kind.decode

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_functions": {}}


def _expand_and(inner: Callable[[bytes], Any], data: bytes) -> Any:
    with compressed_field(len(data)):
        return inner(expand(data))


def _check_rule(rule: DecodeRule) -> None:
    if isinstance(rule, str):
        check_form(rule)
    elif isinstance(rule, PictureDecoder) and rule.is_random:
        raise Usage(
            "a crop at random would be another one each time",
            "call it with the bytes in transform= of a loader, which has the same random numbers again",
        )
    elif not (rule is None or isinstance(rule, bool) or callable(rule)):
        words = "a function of bytes, True, None, or the name of a form of pictures"
        raise TypeError(f"a rule of decode is {words}, not {type(rule).__name__}")
