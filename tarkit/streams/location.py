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
expanded in its replacement.

`expand_inputs` checks that every path exists, so that a missing shard is reported before anything is read or written.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from tarkit.errors import MissingFile, TarkitError, Unsupported, Usage, hint_without_missing, show, unreadable
from tarkit.redaction import hide_secrets
from tarkit.sizes import and_more, plural
from tarkit.stores import connect, rewrite, schemes
from tarkit.streams.braces import expand_braces, expand_command
from tarkit.streams.codecs.registry import (
    CODECS,
    FOREIGN,
    LZMA,
    MESSAGE_SUFFIXES,
    MESSAGES,
    ZIP,
    message_format_by_suffix,
)
from tarkit.streams.text import file_label, open_file_or_stdin, parse_file

if TYPE_CHECKING:
    from tarkit.stores.store import StoreOptions
    from tarkit.streams.fileobjects import FileObjectInput, FileObjectReader
    from tarkit.streams.mds_index import FileSums

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

PARQUET = ".parquet"
"""The suffix of a view or a table: of a file, or of a directory with the files of one, as Spark writes it."""

_RARE = frozenset(suffix for suffix in MESSAGE_SUFFIXES if "." in suffix[1:])  # not listed in messages

Kind = Literal["stdin", "stdout", "path", "pipe", "url", "socket", "object"]
Item = TypeVar("Item")
_State = Literal["missing", "file", "dir"]

_DIGITS = r"([0-9]+)"
_NUMBERS = r"(%0?[0-9]*d|\{[0-9]+\.\.[0-9]+(?:\.\.[0-9]+)?\})"
_MAGIC = r"[*?[]"


class TableWords(NamedTuple):
    """How rows of a Parquet table are samples: fields in the words of `--set`, and the key; empty: by its columns."""

    set: str
    key: str | None


class RowsOfView(NamedTuple):
    """Rows of a view: the first one, and the one behind the last.

    `version` is the size and the version of the file whose rows were counted: of another one these are other rows.
    """

    start: int
    stop: int
    version: tuple[object, ...]


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
    table: TableWords | None = None  # how the rows of a Parquet table are samples
    rows: RowsOfView | None = None  # of a view, those that are read; None for all
    sums: FileSums | None = None  # of its file, which are compared


STDIN = Location("stdin", "-", "stdin")
STDOUT = Location("stdout", "-", "stdout")


def expand_inputs(
    words: Sequence[str],
    files_from: Sequence[str] = (),
    nul: bool = False,
    load: bool = False,
    options: StoreOptions | None = None,
    missing: bool | Literal["all"] = False,
) -> list[Location]:
    """Return the inputs that the arguments name, in order.

    Args:
        words: the arguments; without these and without lists the input is stdin.
        files_from: lists of inputs (see `file_location`) with one argument a line; blank lines are skipped.
        nul: the names in the lists end with NUL and are taken literally, as `find -type f -print0` writes them.
        load: the only argument is a list (tarp's -l).
        options: how URLs are reached; None for the options of the process.
        missing: include paths that do not exist, if another input exists; `"all"` in any case, for a caller that
            reports them.

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
    expansion = _Expansion(options, bool(missing))
    locations = [location for word in words for location in expansion.inputs(word)]
    locations += expand_lists(files_from, nul, expansion.exact_path if nul else expansion.inputs)
    _stdin_once(sum(location.kind == "stdin" for location in locations) + files_from.count("-"))
    if missing is True and all(each.kind == "path" and not os.path.lexists(each.text) for each in locations):
        raise _missing(locations[0].text)
    return locations


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
    directory = _directory()

    def place(name: str) -> str:
        if directory is None or directory == _directory() or parse_output(name).kind != "path":
            return name
        return os.path.join(directory, parse_output(name).text)

    return place


def _directory() -> str | None:
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


def is_view(location: Location) -> bool:
    """Return whether an input or output is a view, or a table: a file or an object whose name ends in `.parquet`."""
    if location.kind not in ("path", "url"):
        return False
    name = location.text.lower()
    return (name.partition("?")[0] if name.startswith("http") else name).endswith(PARQUET)  # a URL may be signed


def says_view(location: Location) -> bool:
    """Return whether the name of a Parquet file, or of the directory of its parts, says that it is a view."""
    name = location.text.lower()
    name = name.partition("?")[0] if name.startswith("http") else name
    return re.search(r"\.view\.parquet(?:/[^/]*)?$", name) is not None


def has_columns(location: Location) -> bool:
    """Return whether the name of an input says that it is a table: a view, or a file of records with named values."""
    form = location.format or message_format_by_suffix(location.text)
    numbered = (
        form is None and re.search(r"-[0-9]{5}-of-[0-9]{5}$", location.text) is not None
    )  # as TensorFlow names it
    return is_view(location) or numbered or (form in MESSAGES and MESSAGES[form].has_columns)


def numbered_keys(location: Location) -> str:
    """Return the template of keys of a table without keys: the name of its file, without suffixes, and the row."""
    if location.kind not in ("path", "url"):
        return "{index:09d}"
    name = location.text.rpartition("/")[2]
    if form := message_format_by_suffix(name):
        suffixes = "|".join(map(re.escape, sorted(MESSAGES[form].suffixes, key=len, reverse=True)))
        name = re.sub(rf"(?:{suffixes})(?:\.\w+)?", "", name, count=1, flags=re.IGNORECASE).replace(".", "-")
    stem = name.partition(".")[0].replace("{", "{{").replace("}", "}}")
    return f"{stem}/{{index:09d}}"


def refuse_view(location: Location) -> None:
    """Raise Unsupported if an input is a view, where archives alone are read."""
    if is_view(location):
        hint = f"tarkit cat {location.name} -o NAME.tar makes an archive of it"
        raise Unsupported(f"{location.name}: a view, and this reads archives", hint)


def natural_key(text: str) -> tuple[list[str | int], str]:
    """Return a sort key that compares runs of digits by their value: `2` before `10`, and `01` before `1`."""
    parts: list[str | int] = list(re.split(_DIGITS, text))
    parts[1::2] = map(int, parts[1::2])
    return parts, text


def _stdin_once(times: int) -> None:
    if times > 1:
        raise Usage("stdin is named more than once")


def expand_lists(lists: Iterable[str], nul: bool, expand: Callable[[str], Iterable[Item]]) -> list[Item]:
    """Return what the arguments in lists stand for, by `expand`. Raises TarkitError with the list and the line."""
    items: list[Item] = []
    for name in lists:
        shown = file_location(name).name
        for number, word in _read_list(name, shown, nul):
            try:
                items += expand(word)
            except TarkitError as error:
                raise type(error)(f"{shown}:{number}: {error}", error.hint) from error
    return items


def _read_list(name: str, shown: str, nul: bool) -> list[tuple[int, str]]:
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


class _Expansion(NamedTuple):
    """How arguments are expanded: see `expand_inputs`."""

    options: StoreOptions | None
    missing: bool

    def inputs(self, word: str) -> list[Location]:
        if word == "-":
            return [STDIN]
        if (state := _look(word)) != "missing":
            return [_path(word)] if state == "file" else _archives_or_error(word)
        if not word:
            raise Usage("the name of an input is empty", "is a shell variable unset?")
        if word.startswith("file:"):
            return self._named(word)
        items = [rewrite.substitute(item) for item in rewrite.split_list(word)]
        if items != [word]:
            return [location for item in items for location in self.inputs(item)]
        command = word.removeprefix("pipe:")
        names = expand_braces(word) if command == word else [f"pipe:{text}" for text in expand_command(command)]
        replaced = rewrite.rewritten(names)
        if replaced != names:  # existing paths are not subject to rules
            replaced = [new if _look(name) == "missing" else name for name, new in zip(names, replaced, strict=True)]
        if replaced != names or command != word or schemes.scheme_of(word):
            return [location for name in replaced for location in self._named(name)]
        return self._paths(word, names)

    def exact_path(self, path: str) -> list[Location]:
        """Return a path of a list whose names end with NUL."""
        state = "file" if self.missing else _look(path)
        if state == "missing":
            raise _missing(path)
        if state == "dir":
            raise TarkitError(f"{_path(path).name}: Is a directory", "find DIRECTORY -type f -print0 names files only")
        return [_path(path)]

    def _named(self, name: str) -> list[Location]:
        """Return the inputs of a name whose braces are expanded and that the rules were applied to."""
        if name == "-":
            return [STDIN]
        if name.startswith("file:"):
            return self._literal(name.removeprefix("file:"))
        if name.startswith("pipe:"):
            return [_pipe(name.removeprefix("pipe:"))]
        return _urls(name, self.options) if schemes.scheme_of(name) else self._paths(name, [name])

    def _literal(self, path: str) -> list[Location]:
        state = _look(path)
        if state == "dir":
            return _archives_or_error(path)
        if state == "missing" and not self.missing:
            hint = "after file: braces and wildcards are plain text" if re.search(_MAGIC, path) else None
            raise _missing(path, hint)
        return [_path(path)]

    def _paths(self, word: str, names: list[str]) -> list[Location]:
        """Return the inputs of an argument whose braces expand to `names`."""
        locations: list[Location] = []
        missing = []
        for name in names:
            state = _look(name)
            if state == "dir":
                locations += _archives_or_error(name)
            elif state == "missing" and re.search(_MAGIC, name):
                locations += _glob(name)
            else:
                locations.append(_path(name))
                missing += [name] if state == "missing" else []
        if not missing or self.missing:
            return locations
        if len(names) == 1:
            raise _missing(missing[0])
        counts = f"{len(missing)} of the {plural(len(names), 'name')} of {_path(word).name} are missing"
        nothing = len(missing) == len(names)
        hint = _numbered(word, others=nothing) or (_near(missing[0]) if nothing else hint_without_missing())
        raise MissingFile(f"{_path(missing[0]).name}: No such file or directory ({counts})", hint, missing[0])


def _urls(url: str, options: StoreOptions | None) -> list[Location]:
    """Return the objects that a URL stands for: itself, those that a glob matches, or the archives of a directory.

    In URLs of web servers `?` and `*` are ordinary characters.
    """
    if schemes.is_socket(url) or not (url.endswith("/") or re.search(_MAGIC, url)) or not schemes.is_listed(url):
        return [_url(url, options)]
    from tarkit.stores import listing

    names = listing.in_child(url, partial(listing.all_matching, url, options))
    if url.endswith("/"):
        names = list(filter(_chooser(url), names))
        nothing, hint = "no archives in this directory", f"'{url}**/*.tar' also searches subdirectories"
    else:
        nothing, hint = "matches no archive", "'**/*.tar' also searches subdirectories"
    if not names:
        raise TarkitError(f"{schemes.public_name(url)}: {nothing}", hint)
    return [_url(name, options) for name in sorted(names, key=natural_key)]


def _numbered(word: str, others: bool = True) -> str | None:
    """Return a hint with the names that exist and differ from those of a template in their numbers alone.

    Without `others`, only if they have another number of digits.
    """
    directory, name = os.path.split(word)
    parts = re.split(_NUMBERS, name)
    pattern = re.compile("".join("([0-9]+)" if at % 2 else re.escape(part) for at, part in enumerate(parts)))
    try:
        names = sorted(filter(pattern.fullmatch, os.listdir(directory or ".")), key=natural_key)
    except OSError:
        return None
    match = pattern.fullmatch(names[0]) if names else None
    if match is None or len(parts) == 1:
        return None
    there = and_more([show(os.path.join(directory, names[0])), *names[1:]])
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
    if os.path.islink(path):
        hint = f"it is a symbolic link to {show(os.readlink(path))}"
    elif path.startswith("@"):
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
        matches = get_close_matches(name, os.listdir(directory or "."), 1, 0.85)
    except OSError:
        return None
    return f"did you mean {show(os.path.join(directory, matches[0]))}?" if matches else None


def _path(text: str) -> Location:
    if not text:
        raise Usage("file: without a name", "is a shell variable unset?")
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


def _look(path: str) -> _State:
    try:
        return "dir" if stat.S_ISDIR(os.stat(path).st_mode) else "file"
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        # too long for a path: a command or a URL; other errors are reported when the file is opened
        return "missing" if error.errno == errno.ENAMETOOLONG else "file"


def _is_archive(name: str) -> bool:
    """Return whether the name of a file in a directory is that of an archive."""
    return name.lower().endswith(_INPUT_SUFFIXES) or message_format_by_suffix(name) is not None


def _is_part(name: str) -> bool:
    """Return whether the name of a file in a directory NAME.parquet is that of a part."""
    return name.lower().endswith(PARQUET)


def _chooser(directory: str) -> Callable[[str], bool]:
    """Return the function that chooses the files for which a directory stands: archives, or parts of a table."""
    return _is_part if directory.rstrip("/").lower().endswith(PARQUET) else _is_archive


def _archives(directory: str) -> list[Location]:
    """Return the archives in a directory, by suffix, in natural order; hidden files are unfinished outputs.

    With an index of MDS they are its shards, in its order.
    """
    from tarkit.streams.mds_index import NAME, read_index

    if os.path.exists(os.path.join(directory, NAME)) and (shards := read_index(directory)) is not None:
        return [_path(path)._replace(format="mds", sums=sums) for path, sums in shards]
    chosen = _chooser(directory)
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if chosen(entry.name) and entry.name[0] != "." and not entry.is_dir()]
    return [_path(os.path.join(directory, name)) for name in sorted(names, key=natural_key)]


def _archives_or_error(directory: str) -> list[Location]:
    archives = _archives(directory)
    if not archives:
        name = _path(directory).name
        if _chooser(directory) is _is_part:
            raise TarkitError(
                f"{name}: no parts of a table in this directory",
                f"its name ends in {PARQUET}, as those of its parts do; '{os.path.join(name, '*.tar')}' reads archives",
            )
        raise TarkitError(
            f"{name}: no archives in this directory",
            f"looked for {' '.join(suffix for suffix in ARCHIVE_SUFFIXES if suffix not in _RARE)}; "
            f"'{os.path.join(name, '**', '*.tar')}' also searches subdirectories",
        )
    return archives


def _glob(pattern: str) -> list[Location]:
    """Return the matches of a pattern, in natural order. A directory stands for its archives, except with `**`."""
    from glob import glob

    names = sorted(glob(pattern, recursive=True), key=natural_key)
    locations: list[Location] = []
    for name in names:
        if _look(name) != "dir":
            locations.append(_path(name))
        elif "**" not in pattern:
            locations += _archives(name)
    if not locations:
        raise TarkitError(f"{_path(pattern).name}: matches no archive", "'**/*.tar' also searches subdirectories")
    return locations
