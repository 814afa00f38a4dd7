"""Parse the arguments that name inputs and outputs: path, `-`, pipe:COMMAND, URL, braces, globs, directories, lists.

An input is interpreted by the first of these rules that applies:

1. `-` is stdin.
2. An existing path is that path, whatever it looks like; a directory stands for its archives. So a shell's `*` that
   matches a file named `pipe:...` runs no command.
3. `file:PATH` is PATH literally: no braces, no glob, no percent decoding.
4. `a::b` is a list of inputs, and in each `${NAME}` stands for the environment variable WDS_NAME (`stores.rewrite`).
5. `pipe:COMMAND` is a command; `expand_command` expands some of its braces.
6. `SCHEME://...` is a URL; its braces are expanded.
7. Otherwise braces are expanded, then `*`, `?`, `[` and `**` (subdirectories) in each name that does not exist.

After the expansion of braces, rules (`rewrite`) may replace a name that no existing path has; nothing but a glob is
expanded in what replaces it.

`expand_inputs` checks that every path exists, so that a missing shard is reported before anything is read or written.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

from tarkit.errors import MissingFile, TarkitError, Usage, show, unreadable
from tarkit.redaction import hide_secrets
from tarkit.stores import connect, rewrite, schemes
from tarkit.streams.codecs.registry import CODECS, FOREIGN, LZMA, MESSAGE_SUFFIXES, ZIP
from tarkit.streams.text import file_label, open_file_or_stdin, parse_file

if TYPE_CHECKING:
    from tarkit.stores.store import StoreOptions
    from tarkit.streams.fileobjects import FileObjectInput, FileObjectReader

# ---- Braces: counted first, then expanded by the package `braceexpand`
# They follow bash's rules (`{000..099}`, `{0..9..3}`, `{a..e}`, `{x,y{1..3}}`, padding kept), but a backslash is an
# ordinary character, and an argument whose braces do not match is plain text.
#
# In a COMMAND most braces belong to the shell or another program: `${X}`, `{ a; b; }`, awk '{print $1, $2}', jq
# '{id,url}', sed 's/a{1,3}//'. Expanding one of these would run the command twice and silently double the data. So a
# group in a command is expanded only if it is or contains a range `{A..B}`, no `$` precedes it, and nothing in it is
# blank, quoted or special to the shell.

MAX_NAMES = 10_000_000
"""Names that the braces of one argument may expand to, as in ishard."""

MAX_DEPTH = 50
"""Levels of nested braces; `braceexpand` is recursive."""

_RANGE = r"(?:(-?\d+)\.\.(-?\d+)|([A-Za-z])\.\.([A-Za-z]))(?:\.\.-?(\d+))?\n?"
_IN_BRACES = r"\{(?:-?\d+\.\.-?\d+|[A-Za-z]\.\.[A-Za-z])(?:\.\.-?\d+)?\}"
_SHELL = r"[\s'\"`$;|&<>()\\]"
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # the order of braceexpand


class Group(NamedTuple):
    """A matched pair of braces: its position, how many names it expands to, and whether it is a range or a list."""

    start: int
    stop: int
    names: int
    expands: bool


class _Open:
    """An unclosed brace. `before` counts the names of the alternatives so far, `names` those of the current one."""

    __slots__ = ("before", "commas", "names", "start")

    def __init__(self, start: int) -> None:
        self.start, self.names, self.before, self.commas = start, 1, 0, False


def expand_braces(word: str) -> list[str]:
    """Return the names that `word` expands to, or itself. Raises Usage for too many."""
    if "{" not in word:
        return [word]
    count, _ = scan(word)
    if count is None:
        return [word]
    _check(count, word)
    return _brace_expansion(word)


def _brace_expansion(text: str) -> list[str]:
    from braceexpand import braceexpand

    return list(braceexpand(text, escape=False))


def expand_command(command: str) -> list[str]:
    """Return the commands that `command` expands to (see above which of its groups are expanded)."""
    groups = _groups_to_expand(command)
    _check(prod(group.names for group in groups), command)
    pieces: list[list[str]] = []
    position = 0
    for group in groups:
        pieces.append([command[position : group.start]])
        pieces.append(_brace_expansion(command[group.start : group.stop]))
        position = group.stop
    pieces.append([command[position:]])
    return ["".join(choice) for choice in product(*pieces)]


def scan(text: str) -> tuple[int | None, list[Group]]:
    """Return how many names `text` expands to, None if its braces do not match, and its groups, inner ones first."""
    stack = [_Open(0)]
    groups: list[Group] = []
    debt = 0
    for position, char in enumerate(text):
        if char == "{":
            if debt:  # as in braceexpand, a `}` without partner and a later `{` are both plain text
                debt -= 1
            else:
                stack.append(_Open(position))
        elif char == "}":
            if len(stack) == 1:
                debt += 1
            else:
                group = _closed(stack.pop(), text, position)
                groups.append(group)
                stack[-1].names *= group.names
        elif char == "," and len(stack) > 1:
            top = stack[-1]
            top.before, top.names, top.commas = top.before + top.names, 1, True
        if len(stack) > MAX_DEPTH:
            raise Usage(f"{show(text)}: braces are nested more than {MAX_DEPTH} deep")
    return (None if debt or len(stack) > 1 else stack[0].names), groups


def _closed(opened: _Open, text: str, position: int) -> Group:
    span = _range_size(text[opened.start + 1 : position])
    names = span or opened.before + opened.names
    return Group(opened.start, position + 1, names, bool(span) or opened.commas)


def _range_size(text: str) -> int:
    """Return how many names the range `A..B[..STEP]` has, 0 if `text` is no range."""
    found = re.fullmatch(_RANGE, text)
    if not found:
        return 0
    low, high, first, last, step = found.groups()
    try:
        length = abs(int(high) - int(low)) if low else abs(_ALPHABET.index(last) - _ALPHABET.index(first))
        return length // (int(step or 1) or 1) + 1
    except ValueError:  # Python does not convert numbers of thousands of digits
        return MAX_NAMES + 1


def _check(count: int, word: str) -> None:
    if count > MAX_NAMES:
        raise Usage(f"{show(word)}: the braces expand to more than {MAX_NAMES:,} names")


def _groups_to_expand(command: str) -> list[Group]:
    """Return the outermost groups of a command that are expanded, from left to right."""
    found: list[Group] = []
    shell_ends = 0
    for group in sorted(scan(command)[1]):
        text = command[group.start : group.stop]
        if command[group.start - 1 : group.start] == "$":
            shell_ends = max(shell_ends, group.stop)
        elif group.start < shell_ends or (found and group.start < found[-1].stop):
            continue
        elif group.expands and re.search(_IN_BRACES, text) and not re.search(_SHELL, text):
            found.append(group)
    return found


ARCHIVE_SUFFIXES = (
    ".tar",
    *(suffix for codec in CODECS.values() for suffix in codec.suffixes if suffix.startswith(".t")),
    *ZIP.suffixes,
    *MESSAGE_SUFFIXES,
)
"""Suffixes of archives: `.tar`, `.tar.gz`, `.tgz` .., `.zip`, `.cbors`, `.mp` .. (lower case).

A bare `.gz` may be anything.
"""

_INPUT_SUFFIXES = (
    *ARCHIVE_SUFFIXES,
    *(suffix for codec in (LZMA, *FOREIGN) for suffix in codec.suffixes if suffix.startswith(".t")),
)
"""Suffixes of the archives in a directory: also those that are only read, and those that are refused with an error."""

_RARE = frozenset(suffix for suffix in MESSAGE_SUFFIXES if "." in suffix[1:])  # not listed in messages

Kind = Literal["stdin", "stdout", "path", "pipe", "url", "socket", "object"]
_Found = Literal["missing", "file", "dir"]

_MANY = 500  # names in one directory: from here on listing it is cheaper than a stat of each
_DIGITS = r"([0-9]+)"
_NUMBERS = r"(%0?[0-9]*d|\{[0-9]+\.\.[0-9]+(?:\.\.[0-9]+)?\})"
_MAGIC = r"[*?[]"


class Location(NamedTuple):
    """An input or an output.

    `text` is the path, command or URL without its prefix (undecodable bytes as surrogates), `name` the name for
    messages: printable, on one line, without secrets.
    """

    kind: Kind
    text: str
    name: str
    file: FileObjectInput | FileObjectReader | None = None  # of the kind `object`
    options: StoreOptions | None = None  # of a URL; None for those of the process
    format: str | None = None  # tar, or a format of messages; None for what the name and the first bytes say


STDIN = Location("stdin", "-", "stdin")
STDOUT = Location("stdout", "-", "stdout")


def expand_inputs(
    words: Sequence[str],
    files_from: Sequence[str] = (),
    nul: bool = False,
    load: bool = False,
    options: StoreOptions | None = None,
) -> list[Location]:
    """Return the inputs that the arguments name, in order.

    Args:
        words: the arguments; without these and without lists the input is stdin.
        files_from: lists of inputs (see `file_location`) with one argument a line; blank lines are skipped.
        nul: the names in the lists end with NUL and are taken literally, as `find -type f -print0` writes them.
        load: the only argument is a list (tarp's -l).
        options: how URLs are reached; None for the options of the process.

    Raises:
        TarkitError: an input does not exist, or a list cannot be read.
        Usage: an unknown scheme, more than ten million names, or stdin named twice.
    """
    if load:
        if len(words) != 1:
            raise Usage(f"--load takes one argument, a list of inputs, not {len(words)}")
        words, files_from = (), [*words, *files_from]
    if not words and not files_from:
        return [STDIN]
    _stdin_once(words.count("-") + files_from.count("-"))
    found = [location for each in _expand(words, options) for location in each]
    for name in files_from:
        found += _listed(name, nul, options)
    _stdin_once(sum(location.kind == "stdin" for location in found) + files_from.count("-"))
    return found


def parse_output(word: str, options: StoreOptions | None = None) -> Location:
    """Return the output that `word` names: `-`, pipe:COMMAND, a URL, file:PATH or a path. Nothing is expanded."""
    if not word:
        raise Usage("the name of the output is empty", "is a shell variable unset?")
    if word == "-":
        return STDOUT
    if word.startswith("file:"):
        return _path(word.removeprefix("file:"))
    if word.startswith("pipe:"):
        return _pipe(word.removeprefix("pipe:"))
    if schemes.scheme_of(word):
        return _url(word, options, writing=True)
    return _path(word)


def anchored() -> Callable[[str], str]:
    """Return a function of the name of an output: a path is seen from the present directory, also after a change of it.

    While the directory is the same, and for other outputs than paths, the name is returned as it is.
    """
    here = _directory()

    def place(name: str) -> str:
        if here is None or here == _directory() or parse_output(name).kind != "path":
            return name
        return os.path.join(here, parse_output(name).text)

    return place


def _directory() -> str | None:
    """Return the present directory; None if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def portable_location(location: Location) -> Location:
    """Return an input or output as other machines, which share its directory, find it; its name stays.

    Raises:
        Usage: it is of this process alone, such as stdin.
    """
    if location.kind not in ("path", "url", "pipe"):
        raise Usage(f"{location.name}: other machines cannot use it", "name files or URLs")
    if location.kind == "path":
        return location._replace(text=os.path.abspath(location.text))
    return location._replace(options=connect.portable_options(location.options)) if location.kind == "url" else location


def file_location(word: str) -> Location:
    """Return the location of a file that is read beside the data, such as a list: `-` is stdin; nothing is expanded."""
    return STDIN if word == "-" else Location(*parse_file(word), file_label(word))


def natural_key(text: str) -> tuple[list[str | int], str]:
    """Return a sort key that compares runs of digits by their value: `2` before `10`, and `01` before `1`."""
    parts: list[str | int] = list(re.split(_DIGITS, text))
    parts[1::2] = map(int, parts[1::2])
    return parts, text


def _stdin_once(times: int) -> None:
    if times > 1:
        raise Usage("stdin is named more than once")


def _listed(name: str, nul: bool, options: StoreOptions | None) -> Iterator[Location]:
    shown = list_name(name)
    numbered = read_list(name, shown, nul)
    words = [word for _, word in numbered]
    expanded = _exact_paths(words) if nul else _expand(words, options)
    for number, _ in numbered:
        try:
            yield from next(expanded)
        except TarkitError as error:
            raise type(error)(f"{shown}:{number}: {error}", error.hint) from error


def list_name(name: str) -> str:
    """Return the name of a list of inputs for messages."""
    return file_location(name).name


def read_list(name: str, shown: str, nul: bool) -> list[tuple[int, str]]:
    """Return the arguments in a list, each with its line number. Raises TarkitError if there are none."""
    try:
        with open_file_or_stdin(name) as stream:
            data = stream.read()
        if not nul:
            data = data.removeprefix(b"\xef\xbb\xbf")  # a byte order mark
    except OSError as error:
        raise unreadable(shown, error) from error
    if b"\0" in data and not nul:
        raise TarkitError(f"{shown}: a list of inputs with NUL bytes", "is it an archive? names ended by NUL need -0")
    if nul:
        words = [(number, os.fsdecode(word)) for number, word in enumerate(data.split(b"\0"), 1) if word]
    else:
        lines = enumerate(data.split(b"\n"), 1)
        words = [(number, os.fsdecode(line.removesuffix(b"\r"))) for number, line in lines if line.strip()]
    if not words:
        raise TarkitError(f"{shown}: an empty list of inputs")
    return words


def _expand(words: Sequence[str], options: StoreOptions | None) -> Iterator[list[Location]]:
    """Yield the inputs of each argument."""
    for word, found in zip(words, _look(words), strict=True):
        if word == "-":
            yield [STDIN]
        elif found == "file":
            yield [_path(word)]
        elif found == "dir":
            yield _archives_or_error(word)
        else:
            yield _special(word, options)


def _exact_paths(words: Sequence[str]) -> Iterator[list[Location]]:
    for word, found in zip(words, _look(words), strict=True):
        if found == "missing":
            raise _missing(word)
        if found == "dir":
            raise TarkitError(f"{_path(word).name}: Is a directory", "find DIRECTORY -type f -print0 names files only")
        yield [_path(word)]


def _special(word: str, options: StoreOptions | None) -> list[Location]:
    """Return the inputs of an argument that is not an existing path."""
    if not word:
        raise Usage("the name of an input is empty", "is a shell variable unset?")
    if word.startswith("file:"):
        return _literal(word.removeprefix("file:"))
    named = _named_by(word)
    if named != [word]:
        return [location for each in _expand(named, options) for location in each]
    names = _names_of(word)
    replaced = _replaced(names)
    if replaced != names:
        return [location for name in replaced for location in _plain(name, options)]
    if word.startswith("pipe:"):
        return [_pipe(name.removeprefix("pipe:")) for name in names]
    if schemes.scheme_of(word):
        return [location for url in names for location in _urls(url, options)]
    return _paths(word, names)


def _named_by(word: str) -> list[str]:
    """Return the arguments that `word` stands for: the items of a list, with variables replaced."""
    return [rewrite.substitute(each) for each in rewrite.split_list(word)]


def _names_of(word: str) -> list[str]:
    """Return the names, commands or URLs that the braces of an argument expand to."""
    if word.startswith("pipe:"):
        return [f"pipe:{command}" for command in expand_command(word.removeprefix("pipe:"))]
    return expand_braces(word)


def _replaced(names: list[str]) -> list[str]:
    """Return the names after the rules of `rewrite`, which existing paths are not subject to."""
    new = rewrite.rewritten(names)
    if new == names:
        return names
    return [old if found != "missing" else name for old, name, found in zip(names, new, _look(names), strict=True)]


def _plain(name: str, options: StoreOptions | None) -> list[Location]:
    """Return the inputs of a name whose braces are expanded and that the rules were applied to."""
    if name == "-":
        return [STDIN]
    if name.startswith("file:"):
        return _literal(name.removeprefix("file:"))
    if name.startswith("pipe:"):
        return [_pipe(name.removeprefix("pipe:"))]
    return _urls(name, options) if schemes.scheme_of(name) else _paths(name, [name])


def _literal(path: str) -> list[Location]:
    """Return the inputs of `file:PATH`."""
    [found] = _look([path])
    if found == "missing":
        raise _missing(path, "after file: braces and wildcards are plain text" if re.search(_MAGIC, path) else None)
    return [_path(path)] if found == "file" else _archives_or_error(path)


def _urls(url: str, options: StoreOptions | None) -> list[Location]:
    """Return the objects that a URL stands for: itself, those that a glob matches, or the archives of a directory.

    In URLs of web servers `?` and `*` are ordinary characters.
    """
    if schemes.is_socket(url) or not (url.endswith("/") or re.search(_MAGIC, url)) or not schemes.is_listed(url):
        return [_url(url, options)]
    from tarkit.stores import listing

    names = listing.in_child(url, partial(listing.all_matching, url, options))
    if url.endswith("/"):
        names = [each for each in names if each.lower().endswith(_INPUT_SUFFIXES)]
        nothing, hint = "no archives in this directory", f"'{url}**/*.tar' also searches subdirectories"
    else:
        nothing, hint = "matches no archive", "'**/*.tar' also searches subdirectories"
    found = [_url(each, options) for each in sorted(names, key=natural_key)]
    if not found:
        raise TarkitError(f"{schemes.public_name(url)}: {nothing}", hint)
    return found


def _paths(word: str, texts: list[str]) -> list[Location]:
    """Return the inputs of an argument whose braces expand to the names `texts`."""
    locations: list[Location] = []
    missing = []
    for text, found in zip(texts, _look(texts), strict=True):
        if found == "file":
            locations.append(_path(text))
        elif found == "dir":
            locations += _archives_or_error(text)
        elif re.search(_MAGIC, text):
            locations += _glob(text)
        else:
            missing.append(text)
    if missing and len(texts) == 1:
        raise _missing(missing[0])
    if missing:
        counts = f"{len(missing)} of the {len(texts)} names of {_path(word).name} are missing"
        nothing = len(missing) == len(texts)
        hint = _numbered(word, others=nothing) or (_near(missing[0]) if nothing else None)
        raise MissingFile(f"{_path(missing[0]).name}: No such file or directory ({counts})", hint, missing[0])
    return locations


def _numbered(word: str, others: bool = True) -> str | None:
    """Return a hint with the names that exist and differ from those of a template in their numbers alone.

    Without `others`, only if they have another number of digits.
    """
    directory, name = os.path.split(word)
    parts = re.split(_NUMBERS, name)
    pattern = re.compile("".join("([0-9]+)" if at % 2 else re.escape(part) for at, part in enumerate(parts)))
    try:
        found = sorted(filter(pattern.fullmatch, os.listdir(directory or ".")), key=natural_key)
    except OSError:
        return None
    match = pattern.fullmatch(found[0]) if found else None
    if match is None or len(parts) == 1:
        return None
    there = show(os.path.join(directory, found[0])) + (f" and {len(found) - 1} more" if len(found) > 1 else "")
    if "%" in "".join(parts[1::2]):
        glob = os.path.join(directory, "".join("*" if at % 2 else part for at, part in enumerate(parts)))
        return f"there are {there}: inputs are named with a glob or braces, {show(glob)}"
    for at, digits in enumerate(match.groups()):
        first, last, *step = parts[2 * at + 1][1:-1].split("..")
        width = len(digits)
        parts[2 * at + 1] = "{" + "..".join([first.zfill(width), last.zfill(width), *step]) + "}"
    padded = os.path.join(directory, "".join(parts))
    if padded == word:
        return f"there are {there}" if others else None
    return f"there are {there}: {show(padded)} has as many digits"


def _missing(path: str, hint: str | None = None) -> TarkitError:
    if path.startswith("@"):
        hint = "a list of inputs is read with -T LIST"
    elif re.search(_NUMBERS, path):
        hint = _numbered(path)
    elif path.count("{") != path.count("}"):
        hint = "braces that do not match are plain text"
    return MissingFile(f"{_path(path).name}: No such file or directory", hint or _near(path), path)


def _near(path: str) -> str | None:
    """Return a hint with the name in the same directory that is most like the last component of a missing path."""
    from difflib import get_close_matches

    directory, name = os.path.split(path)
    try:
        found = get_close_matches(name, os.listdir(directory or "."), 1, 0.85)
    except OSError:
        return None
    return f"did you mean {show(os.path.join(directory, found[0]))}?" if found else None


def _path(text: str) -> Location:
    return Location("path", text, text if text.isprintable() else show(text))


def _pipe(command: str) -> Location:
    if not command.strip():
        raise Usage("pipe: without a command")
    name = f"pipe:{hide_secrets(command)}"
    return Location("pipe", command, name if name.isprintable() else show(name))


def _url(url: str, options: StoreOptions | None, writing: bool = False) -> Location:
    if schemes.is_socket(url):
        return Location("socket", url, schemes.public_name(url), options=options)
    if schemes.find_scheme(url) is None:
        raise schemes.unknown_scheme_error(url, writing)
    if options is not None:
        connect.check_settings(url, options)
    return Location("url", url, schemes.public_name(url), options=options)


def _look(paths: Sequence[str]) -> list[_Found]:
    """Return the type of each path, by one stat for each, or one listing of a directory for many names in it."""
    groups: dict[str, set[str]] = {}
    for path in paths:
        head, slash, tail = path.rpartition("/")
        groups.setdefault(head + slash, set()).add(tail)
    known: dict[str, _Found] = {}
    for directory, names in groups.items():
        if len(names) >= _MANY:
            known.update(_look_in(directory, names))
    return [known.get(path) or _stat(path) for path in paths]


def _look_in(directory: str, names: set[str]) -> Iterator[tuple[str, _Found]]:
    """Yield those of `names` that a listing of `directory` shows; all of them, as missing, if it does not exist."""
    try:
        with os.scandir(directory or ".") as entries:
            for entry in entries:
                if entry.name in names and not entry.is_symlink():
                    yield directory + entry.name, "dir" if entry.is_dir() else "file"
    except (FileNotFoundError, NotADirectoryError):
        for name in names:
            yield directory + name, "missing"
    except OSError:
        return  # a directory may permit opening its files and not listing it


def _stat(path: str) -> _Found:
    try:
        return "dir" if stat.S_ISDIR(os.stat(path).st_mode) else "file"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        # too long for a path: a command or a URL; other errors are reported when the file is opened
        return "missing" if error.errno == errno.ENAMETOOLONG else "file"


def _archives(directory: str) -> list[Location]:
    """Return the archives in a directory, by suffix, in natural order; hidden files are unfinished outputs."""
    with os.scandir(directory) as entries:
        names = [
            entry.name
            for entry in entries
            if entry.name.lower().endswith(_INPUT_SUFFIXES) and entry.name[0] != "." and not entry.is_dir()
        ]
    return [_path(os.path.join(directory, name)) for name in sorted(names, key=natural_key)]


def _archives_or_error(directory: str) -> list[Location]:
    found = _archives(directory)
    if not found:
        name = _path(directory).name
        raise TarkitError(
            f"{name}: no archives in this directory",
            f"looked for {' '.join(suffix for suffix in ARCHIVE_SUFFIXES if suffix not in _RARE)}; "
            f"'{os.path.join(name, '**', '*.tar')}' also searches subdirectories",
        )
    return found


def _glob(pattern: str) -> list[Location]:
    """Return what a pattern matches, in natural order. A directory stands for its archives, except with `**`."""
    from glob import glob

    names = sorted(glob(pattern, recursive=True), key=natural_key)
    locations: list[Location] = []
    for name, found in zip(names, _look(names), strict=True):
        if found != "dir":
            locations.append(_path(name))
        elif "**" not in pattern:
            locations += _archives(name)
    if not locations:
        raise TarkitError(f"{_path(pattern).name}: matches no archive", "'**/*.tar' also searches subdirectories")
    return locations


# ---- Report all missing inputs


def expand_each(
    words: Sequence[str], files_from: Sequence[str] = (), nul: bool = False, options: StoreOptions | None = None
) -> list[Location]:
    """Return the inputs as `expand_inputs` does, missing paths included.

    Raises the same errors, except for missing paths: a directory or a pattern without archives is one.
    """
    if not words and not files_from:
        return expand_inputs(())
    found = [location for word in words for location in _each(word, options)]
    for name in files_from:
        shown = list_name(name)
        for number, word in read_list(name, shown, nul):
            try:
                found += [_path(word)] if nul else _each(word, options)
            except TarkitError as error:
                raise type(error)(f"{shown}:{number}: {error}", error.hint) from error
    if sum(location == STDIN for location in found) + list(files_from).count("-") > 1:
        raise Usage("stdin is named more than once")
    return found


def _each(word: str, options: StoreOptions | None) -> Iterator[Location]:
    named = [word] if os.path.lexists(word) else _named_by(word)
    if named != [word]:
        for each in named:
            yield from _each(each, options)
        return
    try:
        yield from expand_inputs([word], options=options)
        return
    except Usage:
        raise
    except TarkitError:
        path = word.removeprefix("file:")
        if os.path.isdir(path) or word.startswith("pipe:") or schemes.scheme_of(word):
            raise
        names = [path] if path != word else expand_braces(word)
        if len(names) == 1 and any(char in path for char in "*?[") and path == word:
            raise
    if len(names) == 1:
        yield _path(names[0])
    else:
        for name in names:
            yield from _each(name, options)
