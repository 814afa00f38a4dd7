"""A sample whose fields get other contents: replaced, added, removed, and members of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tarkit.errors import Problem, show, spell
from tarkit.problems import Policy
from tarkit.samples.encoder import encode_value
from tarkit.samples.lookup import FieldLookup
from tarkit.samples.names import spelled
from tarkit.samples.sample import ABSENT, Assembly, TarSample, key_of
from tarkit.tables.assignments import Assignment
from tarkit.tables.recipe import MalformedRow
from tarkit.tables.rows import content_of, member_of
from tarkit.tar import block
from tarkit.tar.header import encode
from tarkit.tar.reader import Entry
from tarkit.tar.writer import PADS

SMALL = 1 << 20  # bytes of contents that are compared with the old ones


class FieldEdit:
    """Changes of the fields of one sample; `done` returns the sample with them.

    A field whose content is as before keeps its entry, with its header. A replaced one keeps its name and its place;
    new ones come last. Names match by `names.spelled`.

    Attributes:
        left_out: the policy leaves the sample out.
    """

    def __init__(self, sample: TarSample, policy: Policy) -> None:
        """Begin with a complete sample, which has a key."""
        self._sample, self._policy = sample, policy
        self._lookup = FieldLookup(sample)
        self._contents: dict[bytes, bytes | None] = {}  # by names as they are in the archive; None to remove
        self._others: list[TarSample] = []
        self.left_out = False

    def put(self, field: bytes, content: bytes | None) -> None:
        """Set the content of a field; None removes it."""
        self._contents[spelled(self._lookup.fields, field) or field] = content

    def members(self, field: bytes) -> dict[str, Any] | None:
        """Return the object in a field of JSON, an empty one if there is no such field; None if it has no object.

        Such a field stays as it is if the policy keeps the sample; else the sample is left out.

        Raises:
            Problem: `bad-field`, unless the policy lets it pass.
        """
        raw = self._lookup.find(field)
        if raw is None:
            return {}
        try:
            found = self._lookup.decoded(field, raw, as_json=True)
            if not isinstance(found, dict):
                raise self._lookup.bad(field, "is no object, which has members")
        except Problem as problem:
            self.left_out = self._policy.apply(problem) == "drop" or self.left_out
            return None
        return found

    def add(self, other: TarSample) -> None:
        """Add the fields of another sample with the same key."""
        self._others.append(other)

    def done(self, adds: bool) -> TarSample | None:
        """Return the sample with the changes; None if the policy leaves it out.

        Args:
            adds: fields are only added: one that is there already is the problem `duplicate-entry`.

        Raises:
            Problem: `duplicate-entry`, or `unmovable-entry` for a hard link to a field that is replaced.
        """
        sample, fields = self._sample, self._lookup.fields
        assert sample.key is not None
        cut = len(sample.key) + 1
        new = {name: content for name, content in self._contents.items() if self._differs(name, content)}
        copies = [(other.source, entry) for other in self._others for entry in other.entries if key_of(entry)]
        if not new and not copies:
            return sample
        twice = False
        replaced = {name for name in (*new, *(entry.name[cut:] for _, entry in copies)) if name in fields}
        if adds:
            new = {name: content for name, content in new.items() if content is not None}
            replaced &= {*new, *(entry.name[cut:] for _, entry in copies)}
            twice = bool(replaced)
            if twice and not self._allows(min(replaced)):
                return None
            replaced = set()
        elif not self._links_stay(cut, replaced):
            return None
        made = Assembly(sample.source, sample.start)
        pending = dict(new)
        for entry in sample.entries:
            name = entry.name[cut:] if key_of(entry) else None
            if name not in replaced:
                made.keep(sample.source, entry)
            elif (content := pending.pop(name, None)) is not None:
                _add(made, entry.name, content)
        for name, content in pending.items():
            if content is not None:
                _add(made, sample.key + b"." + name, content)
        for source, entry in copies:
            made.keep(source, entry)
        changed = made.sample(sample.key)
        changed.plain = sample.plain and not twice and all(other.plain for other in self._others)
        return changed

    def _differs(self, name: bytes, content: bytes | None) -> bool:
        """Return whether a field has other content so far."""
        raw = self._lookup.fields.get(name)
        if raw is None or content is None:
            return (raw is None) != (content is None)
        if raw[5] != block.REGULAR or raw[7] >= 0 or raw[3] != len(content) or len(content) > SMALL:
            return True
        return self._lookup.content(name, raw, SMALL) != content

    def _allows(self, field: bytes) -> bool:
        """Return whether a field may be there twice."""
        sample = self._sample
        message = f"{show(sample.key or b'')} has a field {show(field)} already"
        hint = f"{spell('set')} names the fields that are replaced"
        return self._policy.apply(Problem("duplicate-entry", sample.source.name, sample.start, message, hint)) == "keep"

    def _links_stay(self, cut: int, replaced: set[bytes]) -> bool:
        """Return whether no hard link that stays leads to a field that is replaced, or that does not matter."""
        for entry in self._sample.entries:
            if entry.type == block.HARD_LINK and entry.link[cut:] in replaced and entry.name[cut:] not in replaced:
                message = f"{show(entry.name)} is a hard link to {show(entry.link)}, which is replaced or removed"
                problem = Problem("unmovable-entry", self._sample.source.name, entry.start, message)
                if self._policy.apply(problem) == "drop":
                    return False
        return True


def _add(made: Assembly, name: bytes, content: bytes) -> None:
    size = len(content)
    header = encode(name, size, mtime=0)
    made.add(Entry(name, 0, 0, size, 0, block.REGULAR, b"", -1), name, header, content, PADS[size % 512])


Cell = Callable[[str], Any]
"""A function of the name of a column: it returns the cell, None for null, ABSENT if the row has no such column."""

Members = Callable[[str], dict[str, Any] | None]
"""A function of the name of a field of JSON: it returns the object in it, to be changed; None if it has none."""


def assigned(
    assignments: Iterable[Assignment], cell: Cell, members: Members
) -> Iterator[tuple[Assignment, bytes | None]]:
    """Yield what a row sets, each with the content of the field; None to remove it.

    Raises:
        MalformedRow: a cell is no content of the field, or no member of its JSON.
    """
    for one in assignments:
        if not one.members:
            value = cell(one.column)
            if value is not ABSENT:
                yield one, None if value is None else content_of(value, one.field)
            continue
        found = members(one.field)
        changes = (
            [] if found is None else [_set_member(found, member.path, cell(member.column)) for member in one.members]
        )
        if any(changes):
            yield one, encode_value(one.field, found)


def _set_member(members: dict[str, Any], path: Sequence[str], cell: Any) -> bool:
    """Set a member of an object of JSON, or remove it for null; return whether that changes it. Raises MalformedRow."""
    *above, last = path
    at = members
    for name in above:
        if cell is ABSENT or (cell is None and name not in at):
            return False
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            raise MalformedRow(f"{show('.'.join(path))} cannot be set: {show(name)} is no object")
    if cell is ABSENT or (cell is None and at.get(last) is None):  # null may stand for null too
        return False
    if cell is None:
        del at[last]
        return True
    before, at[last] = at.get(last, ABSENT), member_of(cell, at.get(last))
    return before is ABSENT or json.dumps(before) != json.dumps(at[last])
