"""The value of a sample by which it is in a group or a class, or equals another one."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from tarkit.errors import Problem, spell, spell_open
from tarkit.problems import Policy
from tarkit.samples.lookup import SMALL, FieldLookup
from tarkit.samples.sample import TarSample
from tarkit.samples.values import Name

WHITE = " \t\n\r\v\f"  # white space around a value


class FieldValue:
    """The value of a field of a sample, or of a path into one (`samples/values.py`), as bytes.

    Text is stripped of white space; other JSON values are JSON. Called with a sample; returns None when it has no value
    and is left out. Raises Problem: `missing-field`, `bad-field`, `sparse-entry`.

    Args:
        text: the name of the value.
        policy: decides about samples without a value.
        allowed: for messages, what becomes of those that the policy keeps.
        absent: what is returned for them.
        binary: content that is not text is a value as well, with all its bytes, and of more than 1 MiB its hash; else
            it is `bad-field`.
    """

    def __init__(
        self,
        text: str,
        policy: Policy,
        allowed: str = "puts them into one group",
        absent: bytes = b"",
        binary: bool = False,
    ) -> None:
        self._name = Name(text)
        self._policy = policy
        self._allowed = allowed
        self._absent = absent
        self._binary = binary

    def __call__(self, sample: TarSample) -> bytes | None:
        """Return the value."""
        try:
            return self.of(sample)
        except Problem as problem:
            skip, allow = spell_open("skip", problem.name), spell("allow")
            problem.hint = f"{skip} leaves such samples out, {allow} {self._allowed}"
            return self._absent if self._policy.apply(problem) == "keep" else None

    def of(self, sample: TarSample) -> bytes:
        """Return the value, whatever the policy is. Raises Problem."""
        lookup = FieldLookup(sample, complete=self._name.needs_entries)
        value: Any = self._cell(lookup) if self._binary else self._name.words(lookup)
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except ValueError:
                return bytes(value)
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        data: bytes = value.strip(WHITE).encode("utf-8", "surrogateescape")
        return data

    def _cell(self, lookup: FieldLookup) -> Any:
        """Return the value; of content that is too long for one its hash, after bytes that no text has."""
        try:
            return self._name.cell(lookup, SMALL)
        except Problem:
            raw = lookup.find(self._name.field)
            if raw is None or lookup.located(self._name.field, raw).size <= SMALL:
                raise
            hashed = sha256()
            for piece in lookup.pieces(self._name.field, raw):
                hashed.update(piece)
            return b"\xff" + hashed.digest()
