"""The output of a command, and the files that it must not overwrite."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from io import TextIOBase
from typing import BinaryIO, NamedTuple, overload

from tarkit.errors import Usage, spell
from tarkit.pipeline.template import refuse_template
from tarkit.samples.sample import split_name
from tarkit.stores import connect
from tarkit.stores.schemes import scheme_of
from tarkit.stores.store import StoreOptions, parse_options
from tarkit.streams.codecs import (
    FORMAT_ALIASES,
    MESSAGES,
    codec_by_suffix,
    message_format_by_suffix,
    mistaken_suffix,
    parse_spec,
)
from tarkit.streams.fileobjects import FileObjectSink, object_name
from tarkit.streams.location import PARQUET, Location, is_view, parse_output
from tarkit.streams.sink import EncodedSink, Sink, open_sink
from tarkit.streams.text import parse_file

BY_SPLIT = "tarkit split writes a series of shards"
BY_METHOD = "use .split() of a dataset, or ShardWriter, for a series of shards"


BY_NAME = "by name"
"""The format of an output of samples that the suffix of its name decides."""


class Output(NamedTuple):
    """The location of an output and its compression: -o, --compress, --fsync, and threads of the codec.

    `format` is None for bytes that are written as they are; BY_NAME, tar or a format of messages for an archive.
    """

    location: Location
    codec: tuple[str, int | None] | None
    sync: bool = False
    threads: int = 1
    file: BinaryIO | None = None
    format: str | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal."""
        if self.location.kind == "stdout":
            return os.isatty(1)
        return self.location.kind == "path" and _is_terminal(self.location.text)

    @classmethod
    def from_argument(
        cls,
        output: str | os.PathLike[str] | BinaryIO,
        compress: str | None = None,
        sync: bool = False,
        series: str | None = BY_METHOD,
        options: StoreOptions | None = None,
        format: str | None = None,
    ) -> Output:
        """Return the output that an argument of the API names: a path, a URL, `pipe:COMMAND`, `-`, or a file object.

        Args:
            series: the hint for a caller who wants several archives.
            options: how a URL is reached.
            format: tar or a format of messages; None for that of the name.

        Raises:
            Usage: it is a template, or a text file.
            TypeError: it is anything else.
        """
        codec = parse_spec(compress) if compress else None
        format = check_format(format) or BY_NAME
        if isinstance(output, (str, os.PathLike)):
            refuse_template(os.fspath(output), series)
            return cls(parse_output(os.fspath(output), options), codec, sync, format=format)
        if isinstance(output, TextIOBase):
            raise Usage(f"{object_name(output)}: a text file takes no bytes", "open it in mode 'wb'")
        if not hasattr(output, "write"):
            raise TypeError(f"an output is a path or a binary file object, not {type(output).__name__}")
        return cls(Location("object", "", object_name(output)), codec, sync, file=output, format=format)

    @classmethod
    def text_from_argument(
        cls, output: str | os.PathLike[str] | BinaryIO, storage_options: Mapping[str, object] | None
    ) -> Output:
        """Return the output of a table or page that arguments of the Python API are. Raises Usage for a zip too."""
        opened = cls.from_argument(output, series=None, options=parse_options(storage_options))._replace(format=None)
        opened.refuse_zip()
        return opened

    def refuse_terminal(self, content: str = "an archive") -> None:
        """Raise Usage when it is a terminal."""
        if self.is_terminal:
            name = "stdout" if self.location.kind == "stdout" else self.location.name
            hint = f"name the output with {spell('output')}, or use a pipe"
            raise Usage(f"{name}: refusing to write {content} to a terminal", hint)

    def open(self, inputs: Sequence[Location] = ()) -> Sink:
        """Open it; raise Usage when it is one of the inputs."""
        refuse_overwrite(self.status(), inputs)
        if self.form_of(self.location.text) == "mds":
            message = f"{self.location.name}: a data set of MDS is a directory of shards with an index"
            raise Usage(message, "tarkit split -o 'DIRECTORY/shard.%05d.mds' writes both")
        if self.location.kind == "url":
            if self.location.text.endswith("/"):
                raise Usage(f"{self.location.name}: an output is an object, not a directory", "add a name")
            _refuse_object(self.location.text, inputs)
        return self.open_named(self.location.text)

    def open_named(self, text: str, fresh: bool = False) -> Sink:
        """Open an output of this name instead; if `fresh`, an existing file is an error, also one made meanwhile."""
        if self.location.kind == "socket":
            return self._open_socket(text)
        codec, form = self._codec_of(text), self.form_of(text)
        if codec is not None and codec[0] == "zip":
            from tarkit.zip.writer import ZipSink

            if form is not None:
                raise Usage(f"{self.location.name}: a zip holds files, and not {MESSAGES[form].title}")
            return ZipSink(self._plain(text, fresh), codec[1], self.directory)
        if codec is not None and is_view(Location("path", os.path.splitext(text)[0], "")):
            raise Usage(f"{self.location.name}: Parquet is not compressed again", f"its name ends in {PARQUET}")
        if form == "mds" and codec is not None:
            raise Usage(f"{self.location.name}: shards of MDS are written without compression", "name them .mds")
        sink = self._plain(text, fresh)
        try:
            if form == "mds":
                from tarkit.messages.mds_writer import MdsSink

                return MdsSink(sink, split_name, self.directory)
            if codec is not None:
                sink = EncodedSink(sink, *codec, self.threads)
            if form is not None:
                from tarkit.messages.writer import MessageSink

                sink = MessageSink(sink, form, split_name)
        except BaseException:
            sink.abort()
            raise
        return sink

    def _open_socket(self, text: str) -> Sink:
        """Open an address of ZeroMQ. Raises Usage for output other than samples, and for compression."""
        from tarkit.messages.sender import SocketSink
        from tarkit.messages.sockets import parse_address
        from tarkit.messages.writer import MessageSink

        if self.form_of(text) != "msgpack" or self.codec not in (None, ("none", None)):
            raise Usage(f"{self.location.name}: it takes samples alone, in MessagePack and not compressed")
        options = connect.options_of(self.location.options)
        sink = SocketSink(parse_address(text, sends=True), options.tell)
        try:
            return MessageSink(sink, "msgpack", split_name, gathered=0)
        except BaseException:
            sink.abort()
            raise

    def _plain(self, text: str, fresh: bool) -> Sink:
        if self.file is not None:
            return FileObjectSink(self.file, self.location.name)
        return open_sink(self.location.kind, text, sync=self.sync, fresh=fresh, options=self.location.options)

    def form_of(self, text: str) -> str | None:
        """Return the format of messages for an output of this name; None for an archive, or other bytes."""
        form = self.format
        if form == BY_NAME and self.location.kind == "socket":
            form = "msgpack"
        elif form == BY_NAME and self.location.kind in ("path", "url"):
            form = message_format_by_suffix(text)
            if form is None and (mistaken := mistaken_suffix(text)) is not None:
                suffix, meant = mistaken
                hint = f"{meant.title} is {meant.suffixes[0]}, an archive .tar"
                raise Usage(f"{self.location.name}: {suffix} is not the suffix of an output of samples", hint)
        return form if form in MESSAGES else None

    @property
    def has_samples_alone(self) -> bool:
        """Whether it cannot hold entries that belong to no sample."""
        return self.form_of(self.location.text) is not None

    def _codec_of(self, text: str) -> tuple[str, int | None] | None:
        """Return codec (or zip) and level for an output of this name."""
        codec = self.codec
        if codec is None and self.location.kind in ("path", "url"):
            suffix = codec_by_suffix(text)
            codec = (suffix, None) if suffix else None
        return None if codec is not None and codec[0] == "none" else codec

    def check_time(self, mtime: int | None, text: str | None = None) -> None:
        """Raise Usage when this output, or the one called `text`, cannot store `mtime`, in seconds since 1970."""
        codec = self._codec_of(self.location.text if text is None else text)
        if mtime is not None and codec is not None and codec[0] == "zip":
            from tarkit.zip.writer import check_time

            check_time(mtime)

    def refuse_zip(self) -> None:
        """Raise Usage when it is a zip, for an output that gets text."""
        codec = self._codec_of(self.location.text)
        if codec is not None and codec[0] == "zip":
            hint = f"{spell('compress', 'none')}, or another name"
            raise Usage(f"{self.location.name}: refusing to write text to a zip", hint)

    def status(self) -> os.stat_result | None:
        """Return the status of the existing regular file of its name, if there is one."""
        try:
            status = os.fstat(1) if self.location.kind == "stdout" else os.stat(self.location.text)
        except OSError:
            return None
        return status if self.location.kind in ("stdout", "path") and stat.S_ISREG(status.st_mode) else None

    @property
    def directory(self) -> str | None:
        """The directory of a regular file, or of one that does not exist yet."""
        if self.location.kind != "path":
            return None
        try:
            if not stat.S_ISREG(os.stat(self.location.text).st_mode):
                return None
        except OSError:
            pass
        return os.path.dirname(os.path.abspath(self.location.text))


def check_format(format: str | None) -> str | None:
    """Return the format of an input or output of samples. Raises Usage for an unknown one."""
    if format is not None and format != "tar" and format not in MESSAGES:
        hint = f"did you mean {FORMAT_ALIASES[format]!r}?" if format in FORMAT_ALIASES else None
        raise Usage(f"unknown format {format!r}: one of tar, {', '.join(MESSAGES)}", hint)
    return format


def any_output(
    output: str | None, compress: str | None, fsync: bool = False, *, options: StoreOptions | None = None
) -> Output:
    """Return the output of the options of a command, for any content. The default is stdout; templates are accepted."""
    codec = parse_spec(compress) if compress else None
    return Output(parse_output("-" if output is None else output, options), codec, fsync)


def archives_output(
    word: str | None,
    compress: str | None,
    fsync: bool = False,
    *,
    options: StoreOptions | None = None,
    format: str | None = None,
) -> Output:
    """Return the output of one or several archives, whose name may be a template; raise Usage for a terminal."""
    output = any_output(word, compress, fsync, options=options)._replace(format=check_format(format) or BY_NAME)
    output.refuse_terminal()
    return output


def archive_output(
    word: str | None,
    compress: str | None,
    fsync: bool = False,
    series: str | None = BY_SPLIT,
    *,
    options: StoreOptions | None = None,
    format: str | None = None,
) -> Output:
    """Return the output of one archive; raise Usage for a terminal, and for a template with the hint `series`."""
    refuse_template(word, series)
    return archives_output(word, compress, fsync, options=options, format=format)


def text_output(
    word: str | None = None, compress: str | None = None, fsync: bool = False, *, options: StoreOptions | None = None
) -> Output:
    """Return the output of one table or page.

    Raises:
        Usage: the name is a template or that of a zip, or compressed text would go to a terminal.
    """
    refuse_template(word)
    output = any_output(word, compress, fsync, options=options)
    if compress is not None:
        output.refuse_terminal("compressed text")
    output.refuse_zip()
    return output


@overload
def written_path(path: None) -> None:
    """Return None."""


@overload
def written_path(path: str | os.PathLike[str]) -> str:
    """Return the path of a file."""


def written_path(path: str | os.PathLike[str] | None) -> str | None:
    """Return the path of a file that is written besides the output, without `file:`; None for none.

    Raises:
        Usage: it is a template.
    """
    if path is None:
        return None
    word = os.fspath(path)
    refuse_template(word)
    name = word.removeprefix("file:")
    return name if name == word or parse_file(name)[0] == "path" else f"./{name}"


def status_of(path: str | None) -> os.stat_result | None:
    """Return the status of the regular file of this name, if there is one."""
    return None if path is None else Output(Location("path", path, path), None).status()


def and_archives(inputs: Sequence[Location]) -> Sequence[Location]:
    """Return inputs, with the archives that views among them name: these are read as well."""
    if not any(map(is_view, inputs)):
        return inputs
    from tarkit.pipeline.view_rows import with_archives

    return with_archives(inputs)


def refuse_input(path: str | None, inputs: Sequence[Location]) -> None:
    """Raise Usage when the file or object of this name, which will be written, is also an input."""
    if path is not None:
        refuse_overwrite(status_of(path), inputs)
        _refuse_object(path, inputs)


def _refuse_object(url: str, inputs: Sequence[Location]) -> None:
    for location in and_archives(inputs) if scheme_of(url) else ():
        if location.kind == "url" and location.text == url:
            raise Usage(f"{location.name} is both input and output", "write to another object")


def refuse_overwrite(taken: os.stat_result | None, inputs: Sequence[Location]) -> None:
    """Raise Usage when the file that will be written is also an input, by name or by redirection."""
    if taken is None:
        return
    for location in and_archives(inputs):
        if location.kind not in ("stdin", "path"):
            continue
        try:
            status = os.fstat(0) if location.kind == "stdin" else os.stat(location.text)
        except OSError:
            continue
        if os.path.samestat(status, taken):
            raise Usage(f"{location.name} is both input and output", "write to another file, then rename it")


def total_size(inputs: Sequence[Location]) -> int | None:
    """Return the size of all inputs in bytes if they are plain files, for the total of a progress bar."""
    total = 0
    for location in inputs:
        if (
            location.kind != "path"
            or is_view(location)
            or codec_by_suffix(location.text)
            or message_format_by_suffix(location.text)
        ):
            return None
        try:
            total += os.stat(location.text).st_size
        except OSError:
            return None
    return total or None


def _is_terminal(path: str) -> bool:
    try:
        if not stat.S_ISCHR(os.stat(path).st_mode):
            return False
        fd = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.isatty(fd)
    finally:
        os.close(fd)
