"""Files beside the data that options name, such as lists, recipes, plans and manifests: a path, a command or a URL."""

from __future__ import annotations

import io
import os
from functools import partial
from typing import Any, BinaryIO, Literal

from tarkit.errors import TarkitError, show, unreadable
from tarkit.redaction import hide_secrets
from tarkit.stores import connect, schemes
from tarkit.stores.store import StoreOptions
from tarkit.streams.sink import Sink, open_sink

_PARQUET = b"PAR1"  # the first bytes of a file, and its last ones


def parse_file(word: str) -> tuple[Literal["path", "pipe", "url"], str]:
    """Return the kind of file that `word` names, and its path, command or URL. An existing path is that path."""
    if not os.path.lexists(word):
        if word.startswith("file:"):
            return "path", word.removeprefix("file:")
        if word.startswith("pipe:"):
            return "pipe", word.removeprefix("pipe:")
        if schemes.scheme_of(word):
            return "url", word
    return "path", word


def file_label(word: str) -> str:
    """Return the name of a file for messages: printable, on one line, without secrets."""
    kind, text = parse_file(word)
    if kind == "url":
        return schemes.public_name(text)
    text = hide_secrets(word) if kind == "pipe" else text
    return text if text.isprintable() else show(text)


def split_column(word: str) -> tuple[str, str]:
    """Return FILE and COLUMN of `FILE:COLUMN`; the column is empty where there is none."""
    if os.path.exists(word):
        return word, ""
    name, colon, column = word.rpartition(":")
    if not colon or (schemes.scheme_of(word) and "/" in column):
        return word, ""
    return name, column


def open_file(word: str, options: StoreOptions | None = None) -> io.BufferedReader:
    """Open a file for reading. An object is copied to temporary space first, and so is complete.

    `options` say how it is reached; None for those of the process.

    Raises:
        OSError: it cannot be opened; a TarkitError too if it does not exist.
        TarkitError: a store fails. Reading from a command raises CommandFailed at its end.
    """
    kind, text = parse_file(word)
    if kind == "url":
        return _fetched(text, options)
    if kind == "pipe":
        from tarkit.streams.command import CommandReader

        return io.BufferedReader(CommandReader(text))
    try:
        return open(text, "rb")
    except FileNotFoundError as error:
        raise unreadable(text, error) from error


def seekable(file: BinaryIO) -> BinaryIO:
    """Return a file, of a pipe a copy in temporary space, which can be read in any order."""
    if file.seekable():
        return file
    from tarkit.streams.copy import CHUNK
    from tarkit.streams.tempfile import TemporaryFile

    copy = TemporaryFile()
    while data := file.read(CHUNK):
        copy.write(data)
    opened = open(os.dup(copy.fd), "rb")
    opened.seek(0)
    return opened


def open_file_or_stdin(word: str, options: StoreOptions | None = None) -> io.BufferedReader:
    """Open a file for reading; `-` is stdin."""
    return open(0, "rb", closefd=False) if word == "-" else open_file(word, options)


def sum_file(kind: str, text: str, options: StoreOptions | None = None, algorithm: str = "sha256") -> tuple[str, int]:
    """Return the checksum and the length in bytes of a file, or of an object: of its file in the cache, if it has one.

    Args:
        kind: path or url.
        text: the path or the URL.
        algorithm: the name of the checksum, as `hashlib` has it.
    """
    import hashlib  # takes milliseconds to load

    from tarkit.streams.copy import CHUNK

    new_hash = partial(hashlib.new, algorithm, usedforsecurity=False)
    cached = connect.open_cached(text, options) if kind == "url" else None
    if cached is not None or kind != "url":
        with open(text if cached is None else cached.fd, "rb") as file:
            digest = hashlib.file_digest(file, new_hash).hexdigest()
            return digest, os.fstat(file.fileno()).st_size
    hashed, size = new_hash(), 0
    with connect.open_object(text, options).stream() as stream:
        while data := stream.read(CHUNK):
            hashed.update(data)
            size += len(data)
    return hashed.hexdigest(), size


def check_created(word: str | None, options: StoreOptions | None) -> None:
    """Raise Usage for a URL that `create_file` would not take: of an unknown scheme, or with options of another one."""
    if word is not None and (parsed := parse_file(word))[0] == "url":
        connect.store_of(parsed[1], options, writing=True)


def is_there(name: str, storage: StoreOptions | None) -> bool:
    """Return whether a file or an object exists."""
    if not schemes.scheme_of(name):
        return os.path.lexists(name)
    try:
        connect.head_object(name, storage)
    except FileNotFoundError:
        return False
    return True


def create_file(word: str, options: StoreOptions | None = None) -> Sink:
    """Open a file, command or URL for writing; a file appears when it is complete."""
    kind, text = parse_file(word)
    return open_sink(kind, text, options=options)


def _fetched(url: str, options: StoreOptions | None) -> io.BufferedReader:
    from tarkit.stores.listing import in_child
    from tarkit.streams.copy import CHUNK
    from tarkit.streams.tempfile import TemporaryFile

    file = TemporaryFile()

    def fetch() -> list[str]:
        remote = connect.open_object(url, options)
        with remote.stream() as stream:
            while data := stream.read(CHUNK):
                file.write(data)
        return [] if remote.info.ends else [remote.name]

    unproved = in_child(url, fetch)
    opened = open(os.dup(file.fd), "rb")
    opened.seek(0)
    if unproved:
        try:
            _refuse_part(opened, unproved[0], connect.options_of(options))
        except BaseException:
            opened.close()
            raise
    return opened


def _refuse_part(file: io.BufferedReader, name: str, options: StoreOptions) -> None:
    """Say that nothing proves that a file of lines is complete; raise TarkitError if its last line has no end."""
    end = os.fstat(file.fileno()).st_size
    if os.pread(file.fileno(), 4, 0) == _PARQUET:  # whose end says whether it is complete
        return
    why = "the server does not say how long this file is"
    if os.pread(file.fileno(), 1, max(end - 1, 0)) not in (b"\n", b"\0"):
        words = "and its last line has no end: perhaps it is cut short" if end else "and nothing came"
        raise TarkitError(f"{name}: {why}, {words}", "download the file, and compare it with its origin")
    options.warn(f"{name}: {why}: nothing proves that it is complete")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of JSON that has these pairs. Raises ValueError for a key that occurs twice."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{show(max(keys, key=keys.count))} occurs twice")
    return mapping
