"""Read a sequence of maps as a stream of the tar archive with the same samples, so that every command takes one.

Entries have mode 0644 and time 0. A sequence has no end mark: one that is cut between two samples looks like a whole
one.
"""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.bytereader import ByteReader
from tarkit.errors import Problem, show
from tarkit.messages.encodings import load_unpack
from tarkit.messages.maps import EncodeValue, IncompleteMap, MalformedMap, Split, map_to_entries
from tarkit.streams.codecs import CUT, MESSAGES
from tarkit.tables.map_fields import MapFields, keys_hint
from tarkit.tables.recipe import MalformedRow
from tarkit.tar.generated import GeneratedArchive


class MapArchive(GeneratedArchive):
    """A ByteReader of the archive with the samples of the maps that the method `maps` of a subclass yields.

    Args:
        name: the name of the input, for messages.
        split: finds key and field in the name of an entry.
        encode_value: makes bytes of values that are none.
        fields: which fields values are; None: a map is a sample as it is.

    Attributes:
        count: the number of samples so far.
        whole: what the samples are in, for messages: nothing, or words such as " of a CBOR sequence".
    """

    whole = ""

    def __init__(self, name: str, split: Split, encode_value: EncodeValue, fields: MapFields | None = None) -> None:
        super().__init__(name)
        self.count = 0
        self._fields = fields
        self._split = split
        self._encode_value = encode_value

    def maps(self) -> Iterator[tuple[object] | None]:
        """Yield each map as a tuple of one; None where the next one is not there yet."""
        raise NotImplementedError

    def pieces(self) -> Iterator[bytes]:
        """Yield the samples, and nothing at all where the next one is not there yet.

        Raises Problem `bad-data` for a map that is no sample, and for two samples in a row with one key, which would be
        one sample in an archive.
        """
        last = None
        try:
            for item in self.maps():
                if item is None:
                    yield b""
                    continue
                sample = item[0] if self._fields is None else self._chosen(self._fields, item[0])
                key, archive = map_to_entries(sample, self._split, self._encode_value)
                if key == last:
                    hint = None if self._fields is None else keys_hint()
                    raise MalformedMap(f"the key {show(key)} is that of the sample before it as well", hint)
                self.count, last = self.count + 1, key
                yield archive
            if self._fields is not None:
                self._fields.check()
        except MalformedMap as error:
            message = f"sample {self.count + 1}{self.whole} cannot be read: {error}"
            raise Problem("bad-data", self.name, error.position, message, error.hint) from None
        except MalformedRow as error:
            message = f"sample {self.count + 1}{self.whole} cannot be read: {error}"
            raise Problem("bad-data", self.name, None, message, error.hint) from None

    def _chosen(self, fields: MapFields, item: object) -> object:
        return fields.sample(item, self.count) if isinstance(item, dict) else item


class MessageReader(MapArchive):
    """A ByteReader of the archive with the samples of the sequence, of the format `form`, that `reader` reads.

    Raises MissingLibrary: the library of the format is not installed.
    """

    def __init__(
        self,
        reader: ByteReader,
        name: str,
        form: str,
        split: Split,
        encode_value: EncodeValue,
        fields: MapFields | None = None,
    ) -> None:
        super().__init__(name, split, encode_value, fields)
        self.reader = reader
        self._title = MESSAGES[form].title
        self.whole = f" of {self._title}"
        self._unpack = load_unpack(form, f"{name}: reading {self._title}")

    def close(self) -> None:
        super().close()
        self.reader.close()

    def maps(self) -> Iterator[tuple[object]]:
        """Yield the maps. Raises Problem `truncated` for a sequence that ends inside one."""
        try:
            for item in self._unpack(self.reader.read):
                yield (item,)
        except IncompleteMap as error:
            message = f"{self._title} ends inside sample {self.count + 1}"
            raise Problem("truncated", self.name, error.position, message, CUT) from None
