"""Read a sequence of maps as a stream of the tar archive with the same samples, so that every command takes one.

Entries have mode 0644 and time 0. A sequence has no end mark: one that is cut between two samples looks like a whole
one.
"""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.errors import Problem, show
from tarkit.messages.maps import EncodeValue, IncompleteMap, MalformedMap, Split, load_encoding, map_to_entries
from tarkit.streams.codecs import MESSAGES
from tarkit.streams.source import ByteReader, read_function
from tarkit.tar.generated import GeneratedArchive

CUT = "the file was not written or not copied to its end: copy or make it again"


class MessageReader(GeneratedArchive):
    """A ByteReader of the archive with the samples of the sequence that `reader` reads.

    Args:
        reader: the sequence.
        name: its name, for messages.
        form: its format.
        split: finds key and field in the name of an entry.
        encode_value: makes bytes of values that are none.

    Raises:
        MissingLibrary: the library of the format is not installed.
    """

    def __init__(self, reader: ByteReader, name: str, form: str, split: Split, encode_value: EncodeValue) -> None:
        super().__init__(name)
        self.reader = reader
        self._title = MESSAGES[form].title
        self._unpack = load_encoding(form, f"{name}: reading {self._title}").unpack
        self._split = split
        self._encode_value = encode_value

    def close(self) -> None:
        """Close the reader."""
        super().close()
        self.reader.close()

    def pieces(self) -> Iterator[bytes]:
        """Yield the samples.

        Raises Problem: `truncated` for a sequence that ends inside a sample, `bad-data` for anything else that is no
        sample, and for two samples in a row with one key, which would be one sample in an archive.
        """
        count, last = 0, None
        try:
            for item in self._unpack(read_function(self.reader)):
                key, archive = map_to_entries(item, self._split, self._encode_value)
                if key == last:
                    raise MalformedMap(f"the key {show(key)} is that of the sample before it as well")
                count, last = count + 1, key
                yield archive
        except IncompleteMap:
            what = f"{self._title} ends inside sample {count + 1}"
            raise Problem("truncated", self.name, None, what, CUT) from None
        except MalformedMap as error:
            what = f"sample {count + 1} of {self._title} cannot be read: {error}"
            raise Problem("bad-data", self.name, None, what, error.hint) from None
