"""Names of objects that libraries and servers take for another name: they are refused, and left out of lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeGuard

from tarkit.errors import Usage, show
from tarkit.stores.schemes import public_name
from tarkit.stores.store import StoreOptions

_DOTS = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)  # the parts of a name that RFC 3986 6.2.2 removes


def check_name(url: str, name: str, whole: bool = True) -> None:
    """Raise Usage for a name that libraries and servers take for another one; `whole` False is for the start of names.

    They leave out slashes and empty parts, and resolve the parts `.` and `..`, also those that are percent-encoded.
    """
    if (fault := name_fault(name, whole)) is not None:
        raise unnamed_error(url, fault)


def name_fault(name: str, whole: bool = True) -> str | None:
    """Return why `check_name` refuses a name; None if it does not."""
    if name.startswith("/"):
        return "it begins with a slash"
    if "//" in name:
        return "there is nothing between two slashes"
    parts = name.split("/")
    if any(map(_DOTS.fullmatch, parts if whole else parts[:-1])):
        return "a part between slashes is . or .."
    return None


def stays_below(name: str) -> bool:
    """Return whether a name in a file of others is below their directory: no part goes up, however it is decoded."""
    from urllib.parse import unquote  # slow to import

    before = ""
    while name != before:
        name, before = unquote(name), name
        parts = re.split(r"[/\\]", name)
        if parts[0] == "" or not {".", ".."}.isdisjoint(parts):
            return False
    return True


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value, such as one of JSON, is text that UTF-8 can encode: JSON may have halves of characters."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value))


def unnamed_error(url: str, fault: str) -> Usage:
    """Return the error for a name that is refused, and why."""
    return Usage(f"{public_name(url)}: the library cannot name this object: {fault}", "give it another name")


def warn_of_names(url: str, names: Sequence[str], options: StoreOptions) -> None:
    """Warn of objects that are left out of a list, since their names are refused."""
    if names:
        many, them = ("1 object is", "it") if len(names) == 1 else (f"{len(names)} objects are", "them")
        words = f"such as {show(names[0])}: the library cannot name {them}"
        options.warn(f"{public_name(url)}: {many} left out of the list, {words}")
