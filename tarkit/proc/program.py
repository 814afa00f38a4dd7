"""Where programs are, and which commands need no shell to run them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from tarkit.errors import TarkitError, show

_CREATED = os.O_WRONLY | os.O_CREAT
# What bash does itself, or reads as more than a name (bash manual, "Reserved Words", "Shell Builtin Commands").
_OF_BASH = re.compile(
    r"[^A-Za-z0-9]+|"
    r"alias|bg|bind|break|builtin|caller|case|cd|command|compgen|complete|compopt|continue|coproc|declare|dirs|"
    r"disown|do|done|echo|elif|else|enable|esac|eval|exec|exit|export|false|fc|fg|fi|for|function|getopts|hash|"
    r"help|history|if|in|jobs|kill|let|local|logout|mapfile|popd|printf|pushd|pwd|read|readarray|readonly|"
    r"return|select|set|shift|shopt|source|suspend|test|then|time|times|trap|true|type|typeset|ulimit|umask|"
    r"unalias|unset|until|wait|while"
)
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+( +[A-Za-z0-9_@%+=:,./-]+)*")
_REDIRECT = re.compile(r" +(<|>>?) *(/dev/null|[A-Za-z0-9_@%+=:,.-]+)(?= |$)")
_OPENED = {"<": (0, os.O_RDONLY), ">": (1, _CREATED | os.O_TRUNC), ">>": (1, _CREATED | os.O_APPEND)}

Redirect = tuple[int, int, str]
"""A descriptor, how the file for it is opened, and its name: one in the folder where the command runs, or /dev/null."""


def interpreter(name: str, path: str) -> str:
    """Where the program `name` is, along the folders of `path`. Raises TarkitError when it is nowhere."""
    if "/" in name:
        return os.path.abspath(name)
    for folder in path.split(os.pathsep):
        found = os.path.join(folder or ".", name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return os.path.abspath(found)
    raise TarkitError(f"{show(name)} is needed to run commands and was not found")


def direct(command: str, environment: Mapping[bytes, bytes]) -> tuple[str, list[str], list[Redirect]] | None:
    """The program, the words and the files of a command that bash would only read and hand on, None for all that says
    more.

    It saves the start of a shell, which costs more than that of most programs; make does the same.
    """
    command = command.strip(" \n")
    opened = [(*_OPENED[found[1]], found[2]) for found in _REDIRECT.finditer(command)]
    command = _REDIRECT.sub("", command)
    if not _PLAIN.fullmatch(command) or any(
        name.startswith((b"BASH_ENV", b"BASH_FUNC_", b"SHELLOPTS", b"BASHOPTS")) for name in environment
    ):
        return None
    words = command.split()
    path = os.fsdecode(environment.get(b"PATH", b""))
    if _OF_BASH.fullmatch(words[0]) or not all(folder.startswith("/") for folder in path.split(os.pathsep)):
        return None
    if "/" in words[0] and not words[0].startswith("/"):
        return None
    try:
        found = interpreter(words[0], path)
        with open(found, "rb") as file:
            known = file.read(4).startswith((b"\x7fELF", b"#!"))
    except (TarkitError, OSError):
        return None  # bash knows how to say it
    return (found, words, opened) if known and os.access(found, os.X_OK) else None
