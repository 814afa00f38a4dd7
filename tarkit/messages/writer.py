"""Write a sequence of maps: a sink that takes the bytes of a tar archive and writes its samples.

So every command that writes archives can write messages. Adjacent entries with one key are a map. Times, modes and
owners are left out, and so are directories and global PAX headers.
"""

from __future__ import annotations

from typing import Any

from tarkit.errors import Unsupported, show
from tarkit.messages.encodings import load_encoding
from tarkit.messages.maps import KEY, LARGEST, Split, text_or_bytes
from tarkit.streams.codecs import MESSAGES
from tarkit.streams.sink import Sink
from tarkit.tar import block as blocks
from tarkit.tar.entry_sink import GATHERED, EntrySink, kind_name
from tarkit.tar.reader import Entry


class MapSink(EntrySink):
    """A sink that takes a tar archive and collects the map of each sample; a subclass writes them.

    Args:
        target: the sink of the output.
        form: its format.
        split: finds key and field in the name of an entry.

    Raises:
        Unsupported: an entry that a map cannot hold: links and devices, a file that belongs to no sample, a name that
            is there twice or begins with two underscores; a sample larger than LARGEST.
    """

    large = LARGEST

    def __init__(self, target: Sink, form: str, split: Split) -> None:
        super().__init__(target)
        self.format = MESSAGES[form].title
        self._split = split
        self._key: bytes | None = None  # of the sample that is being collected
        self._map: dict[Any, Any] = {}
        self._bytes = 0  # of its fields

    def take(self, entry: Entry, content: bytes) -> None:
        name, type_ = entry.name, entry.type
        if type_ == blocks.DIRECTORY or (type_ in blocks.FILES and name.endswith(b"/") and not content):
            return
        if entry.sparse or type_ not in blocks.FILES:
            raise self.refused(name, "a sparse file" if entry.sparse else kind_name(type_))
        parts = self._split(name)
        if parts is None:
            message = f"{self.name}: {show(name)} belongs to no sample: {self.format} has samples alone"
            raise Unsupported(message, "tarkit check --fix OUT drops such entries")
        key, field = parts
        if not field or field.startswith((b".", b"__")):
            raise self.refused(name, "no name of a field is empty, or begins with a dot or two underscores")
        if key != self._key:
            self._end_sample()
            self._key, self._map, self._bytes = key, {KEY: key}, 0
        named = text_or_bytes(field)
        if named in self._map:
            raise self.refused(name, "the name is there twice in one sample")
        self._map[named] = content
        self._bytes += len(content)
        if self._bytes > LARGEST:
            raise self._too_large(name)

    def begin(self, entry: Entry) -> None:
        raise self._too_large(entry.name)

    def _end_sample(self) -> None:
        """Take the map of the sample that is complete, if there is one."""
        raise NotImplementedError

    def _too_large(self, name: bytes) -> Unsupported:
        return self.refused(name, f"the sample is larger than {LARGEST >> 30} GiB")


class MessageSink(MapSink):
    """A sink that takes a tar archive and writes a sequence of maps to `target`, one piece for each sample.

    Args:
        target, form, split: as for `MapSink`.
        gathered: bytes of samples that are held, to be written together.

    Raises:
        Unsupported: as `MapSink`.
        MissingLibrary: the library of the format is not installed.
    """

    def __init__(self, target: Sink, form: str, split: Split, gathered: int = GATHERED) -> None:
        super().__init__(target, form, split)
        self._pack = load_encoding(form, f"{target.name}: writing {self.format}").pack
        self.gathered = gathered

    def finish(self) -> None:
        self._end_sample()
        self.flush()

    def _end_sample(self) -> None:
        if self._key is not None:
            self.put(self._pack(self._map))
            self._key = None
