"""A recipe: lines `NAME SOURCE`, each of which names the source of an entry.

SOURCE: a path or `file:PATH` · `text:LITERAL` · `hex:..` · `base64:..` · `pipe:COMMAND` · a URL. Other prefixes are
part of a path: `C:x`, `12:30.jpg`. `reader.py` reads tables, whose `@` columns hold the same sources.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Literal, NamedTuple

from tarkit.errors import TarkitError
from tarkit.stores import rewrite, schemes
from tarkit.tar.block import COLON

Kind = Literal["path", "data", "pipe", "url"]

BOM = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """An entry to write: its name, and the location (`kind`: path, pipe, url) or the bytes (data) of its content."""

    name: bytes
    kind: Kind
    value: bytes
    line: int
    recipe: str

    @property
    def where(self) -> str:
        return f"{self.recipe}:{self.line}"


class MalformedRow(ValueError):
    """An error in a source, a cell or a row; the caller adds file and line and raises a `TarkitError`."""

    def __init__(self, reason: str, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(reason)
        self.line = line
        self.hint = hint


def read_recipe(lines: Iterable[bytes], recipe_name: str, *, pipes_allowed: bool) -> Iterator[Row]:
    """Yield the rows of a recipe.

    A line is split at its first tab, else at its first white space. Blank lines, a `#` alone and lines that begin with
    `# ` are skipped. Lines end with LF or CRLF (to end a text with CR, use hex:). Text after `text:` is not changed.
    Names and paths are not checked.

    Raises:
        TarkitError: `RECIPE:LINE: reason`.
    """
    new = tuple.__new__  # a third of the time of Row(...)
    for number, line in enumerate(without_bom(lines), 1):
        line = without_end(line)
        name, tab, value = line.partition(b"\t")
        if not tab:
            words = line.split(None, 1)
            if not words or line == b"#":
                continue
            name, value = words if len(words) == 2 else (words[0], b"")
        if line[:2] == b"# " or (tab and not line.strip()):
            continue
        kind: Kind = "path"
        try:
            if COLON in value:
                kind, value = parse_source(value, pipes_allowed)
            if not value and kind != "data":
                raise MalformedRow("no source: a line is NAME SOURCE")
            if not name:
                raise MalformedRow("no name before the tab")
            if 0 in line and (0 in name or kind != "data"):
                raise MalformedRow("a NUL byte: not a recipe?")
        except MalformedRow as error:
            raise TarkitError(f"{recipe_name}:{number}: {error}", error.hint) from error
        yield new(Row, (name, kind, value, number, recipe_name))


def parse_source(source: bytes, pipes_allowed: bool, rewrites: bool = True) -> tuple[Kind, bytes]:
    """Return the kind and the value of a SOURCE; an empty path or command is returned as such.

    With `rewrites` the rules of the environment (`stores.rewrite`) apply to URLs.

    Raises:
        MalformedRow: invalid hex or base64, an unknown scheme, a command if `pipes_allowed` is false.
    """
    prefix, colon, rest = source.partition(b":")
    if not colon:
        return "path", source
    if prefix == b"text":
        return "data", rest
    if prefix == b"file":
        return "path", rest
    if prefix == b"pipe":
        if not pipes_allowed:
            raise MalformedRow("pipe: is not allowed here")
        return "pipe", rest.strip()
    decode = _DECODERS.get(prefix)
    if decode:
        try:
            return "data", decode(rest)
        except ValueError as error:
            raise MalformedRow(f"bad {prefix.decode()}: {error}") from error
    url = source.decode("utf-8", "surrogateescape")
    if schemes.scheme_of(url) is None:
        return "path", source
    if rewrites:
        [url] = rewrite.rewritten([url])
    source = url.encode("utf-8", "surrogateescape")
    if url.startswith(("file:", "pipe:")):
        return parse_source(source, pipes_allowed, rewrites)
    scheme = schemes.scheme_of(url)
    if scheme and schemes.find_scheme(url) is None:
        unknown = schemes.unknown_scheme_error(url)
        raise MalformedRow(str(unknown), hint=unknown.hint)
    return ("url" if scheme else "path"), source


_PREFIXES = (b"file:", b"text:", b"hex:", b"base64:", b"pipe:")


def path_source(path: bytes) -> bytes:
    """Return a path as a SOURCE, with the prefix `file:` if it could be something else."""
    return b"file:" + path if path.startswith(_PREFIXES) or b"://" in path else path


def text_source(value: bytes) -> bytes:
    """Return literal content as a SOURCE, on one line."""
    if any(byte in value for byte in b"\n\r\t\0"):
        return b"base64:" + b2a_base64(value, newline=False)
    return b"text:" + value


def without_bom(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Return `lines` without the byte order mark that Windows editors write before the first."""
    remaining = iter(lines)
    return chain([line.removeprefix(BOM) for line in [next(remaining, b"")]], remaining)


def without_end(line: bytes) -> bytes:
    """Return `line` without its LF or CRLF; a CR before the end of the file stays."""
    if line[-1:] == b"\n":
        return line[:-2] if line[-2:] == b"\r\n" else line[:-1]
    return line


_DECODERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"hex": lambda text: bytes.fromhex(text.decode("ascii")),
    b"base64": lambda text: a2b_base64(text.strip(), strict_mode=True),
}
