"""The words of `--set`: which columns of a table become which fields of a sample.

    cls                  the column `cls` is the content of the field `cls`
    txt:caption          the column `caption` is the content of the field `txt`; `txt=caption` too
    json:{a,b:column}    members of the object in the field `json`: `a` from the column `a`, `b` from `column`
    json.meta.a          the member of this path, from the column `json.meta.a`, as `tsv` names it; `json.meta.a:column`

A name with blanks or one of `:={},` in it is in double quotes: `txt:"long caption"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tarkit.errors import Usage, show, spell

FORMS = "FIELD, FIELD:COLUMN or json:{A,B:COLUMN}"

_JSON = ("json", "jsn")
_NAME = r'(?:"[^"]+"|[^\s:={},"]+)'
_MEMBER = rf"\s*({_NAME})(?:[:=]({_NAME}))?\s*"
_WORD = re.compile(rf"({_NAME})(?:[:=](?:({_NAME})|\{{((?:{_MEMBER},)*{_MEMBER})\}}))?(?=\s|$)")
_MEMBERS = re.compile(rf"{_MEMBER}(?:,|$)")


class Member(NamedTuple):
    """A member of JSON: the names that lead to it from the object in the field, at least one, and its column."""

    path: tuple[str, ...]
    column: str


class Assignment(NamedTuple):
    """What a field is set to.

    Attributes:
        field: the field of the sample.
        column: the column with its content; empty if members of its JSON are set.
        members: these members; all others stay as they are.
    """

    field: str
    column: str
    members: tuple[Member, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(member.column for member in self.members) or (self.column,)

    def __str__(self) -> str:
        """Return the assignment as a word; names are not in quotes."""
        members = ",".join(f"{'.'.join(member.path)}:{member.column}" for member in self.members)
        return f"{self.field}:{{{members}}}" if members else f"{self.field}:{self.column}"


def parse_assignments(text: str) -> list[Assignment]:
    """Return the fields that words set, in their order; words about members of one field are one assignment.

    >>> parse_assignments("txt:caption json:{a} json.b.c:d")[1]
    Assignment(field='json', column='', members=(Member(path=('a',), column='a'), Member(path=('b', 'c'), column='d')))

    Raises:
        Usage: a word has another form, no field has such a name, or a field is set twice.
    """
    fields: dict[str, Assignment] = {}
    for one in _words(text):
        before = fields.get(one.field)
        if before is None:
            fields[one.field] = one
            continue
        members = before.members + one.members
        paths = [member.path for member in members]
        if not before.members or not one.members or any(_inside(a, b) for a in paths for b in paths if a is not b):
            raise Usage(f"{spell('set')} {show(text)}: {show(one.field)} is set twice")
        fields[one.field] = before._replace(members=members)
    return list(fields.values())


def _words(text: str) -> Iterator[Assignment]:
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        word = _WORD.match(text, at)
        if word is None:
            raise Usage(f"{spell('set')} {show(text[at:])}: a word must be {FORMS}", _repair(text[at:]))
        at = word.end()
        yield _assignment(word)


def _assignment(match: re.Match[str]) -> Assignment:
    name, column, members = _bare(match[1]), _bare(match[2] or ""), match[3]
    field, path = _split_path(name)
    if members is not None:
        if field.rpartition(".")[2].lower() not in _JSON:
            raise Usage(f"{spell('set')} {show(match[0])}: an object is JSON", f"for example json:{{{members}}}")
        pairs = ((_bare(one), _bare(other or one)) for one, other in _MEMBERS.findall(members))
        assignment = Assignment(field, "", tuple(Member((*path, one), other) for one, other in pairs))
    elif path:
        assignment = Assignment(field, "", (Member(path, column or name),))
    else:
        assignment = Assignment(field, column or name)
    _check(assignment, match[0])
    return assignment


def _split_path(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the field of `json.a.b` and the path into its JSON; no path for other names.

    >>> _split_path("meta.json.a.b"), _split_path("seg.png")
    (('meta.json', ('a', 'b')), ('seg.png', ()))
    """
    parts = name.split(".")
    cut = next((place for place, part in enumerate(parts, 1) if part.lower() in _JSON), len(parts))
    return ".".join(parts[:cut]), tuple(parts[cut:])


def _check(one: Assignment, word: str) -> None:
    """Raise Usage for a name that no field has, and for paths of which one is inside another."""
    if one.field.startswith("__") and one.field.endswith("__"):
        hint = f"{spell('rekey')} gives samples other keys" if one.field == "__key__" else None
        raise Usage(f"{spell('set')} {show(word)}: {one.field} is no field", hint)
    if "/" in one.field or "\0" in one.field or not all(one.field.split(".")):
        hint = "a field is what follows the first dot of a name, without a slash: txt, seg.png"
        raise Usage(f"{spell('set')} {show(word)}: invalid name of a field {show(one.field)}", hint)
    paths = [member.path for member in one.members]
    if any(not all(path) for path in paths) or any(_inside(a, b) for a in paths for b in paths if a is not b):
        raise Usage(f"{spell('set')} {show(word)}: a member is set twice, or has no name")


def _inside(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return one == other[: len(one)]


def _bare(name: str) -> str:
    return name.strip('"')


def _repair(rest: str) -> str | None:
    if "," in rest.split()[0] and "{" not in rest.split()[0]:
        return f"words are separated by blanks: {show(rest.split()[0].replace(',', ' '))}"
    return None


def assignment_of(column: str) -> Assignment:
    """Return what the column of this name sets: the field of its name, or a member of JSON. Raises Usage."""
    name = column.removeprefix("@")
    field, path = _split_path(name)
    one = Assignment(field, "", (Member(path, column),)) if path else Assignment(field, column)
    _check(one, column)
    return one


def columns_of(assignments: Iterable[Assignment]) -> list[str]:
    """Return the columns that are read, each once, in order."""
    return list(dict.fromkeys(column for one in assignments for column in one.columns))
