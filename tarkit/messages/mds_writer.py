"""Write shards of MDS; `messages.mds` has the format."""

from __future__ import annotations

import json
import re
import struct
import sys
from array import array
from itertools import accumulate
from typing import Any

from tarkit.errors import Unsupported, show, spell
from tarkit.media.coding import Coder, is_compressed
from tarkit.messages.maps import KEY, Split
from tarkit.messages.writer import MapSink
from tarkit.sizes import plural
from tarkit.streams.copy import CHUNK
from tarkit.streams.mds_index import entry_of
from tarkit.streams.sink import Sink
from tarkit.streams.tempfile import TemporaryFile

MOST = 0xFFFFFFFF  # bytes of a shard
_INTEGER = re.compile(rb"\s*[-+]?[0-9]+\s*")
_CODER = Coder()


class MdsSink(MapSink):
    """A sink that takes a tar archive and writes a shard. Its samples are in temporary space until it is closed.

    Args:
        target: the sink of the shard.
        split: finds key and field in the name of an entry.
        directory: that of temporary files.

    Raises:
        Unsupported: as `MapSink`; a sample that has not the fields of the first one, content that is no value of
            the encoding of its column, or a shard of more than 4 GiB.
    """

    def __init__(self, target: Sink, split: Split, directory: str | None = None) -> None:
        super().__init__(target, "mds", split)
        self._directory = directory
        self._file: TemporaryFile | None = None
        self._sizes = array("I")
        self._total = 0  # bytes of the samples
        self._set_columns({KEY: "str"})
        self._held: list[bytes] = []
        self._holding = 0

    def _end_sample(self) -> None:
        if self._key is None:
            return
        names = {name if isinstance(name, str) else show(name): name for name in self._map}
        if not self._sizes:
            self._set_columns({name: _encoding(name) for name in names})
        elif names.keys() != self._columns.keys():
            others = ", ".join(sorted(names.keys() ^ self._columns.keys()))
            message = f"{self.name}: {show(self._key)} has not the fields of the first sample: {others}"
            ways = f"{spell('fields')} or {spell('require')}"
            raise Unsupported(message, f"MDS has the same columns in all samples: {ways} chooses them")
        contents = [self._checked(name, encoding, names[name]) for name, encoding in self._columns.items()]
        data = b"".join([struct.pack(f"<{len(contents)}I", *map(len, contents)), *contents])
        self._sizes.append(len(data))
        self._total += len(data)
        if self._start + self._total > MOST:
            message = f"{self.name}: a shard of MDS has 4 GiB at most: {plural(len(self._sizes), 'sample')} have more"
            raise Unsupported(message, f"{spell('size', '64M')} closes shards before")
        self._held.append(data)
        self._holding += len(data)
        if self._holding > CHUNK:
            self._spill()
        self._key = None

    def _set_columns(self, columns: dict[str, str]) -> None:
        """Set the columns and their encodings."""
        self._columns = columns
        self._config = {
            "version": 2, "format": "mds", "compression": None, "hashes": [], "size_limit": None,
            "column_names": list(columns), "column_encodings": list(columns.values()),
            "column_sizes": [None] * len(columns),
        }  # fmt: skip
        self._description = json.dumps(self._config, sort_keys=True).encode()

    def index_entry(self, name: str) -> dict[str, Any]:
        return entry_of(self._config, name, len(self._sizes), self._start + self._total)

    @property
    def _start(self) -> int:
        """The position of the first sample."""
        return 4 + 4 * (len(self._sizes) + 1) + len(self._description)

    def _checked(self, column: str, encoding: str, name: str | bytes) -> bytes:
        """Return the content of a column. Raises Unsupported if readers could not decode it."""
        content: bytes = self._map[name]
        try:
            if isinstance(name, bytes):
                raise ValueError("its name is not UTF-8")
            if encoding == "str":
                content.decode()
            elif encoding == "str_int" and not _INTEGER.fullmatch(content):
                raise ValueError("it is no integer")
        except ValueError as error:
            why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            message = f"{self.name}: MDS cannot hold {column} of {show(self._key or b'')}: {why}"
            raise Unsupported(message, f"under a name that says nothing it is bytes: -f 'bin:{column}'") from None
        return content

    def _spill(self) -> None:
        self._file = self._file or TemporaryFile(self._directory)
        self._file.write(b"".join(self._held))
        self._held, self._holding = [], 0

    def finish(self) -> None:
        """Write the shard."""
        self._end_sample()
        offsets = array("I", accumulate(self._sizes, initial=self._start))
        if sys.byteorder == "big":
            offsets.byteswap()
        self.target.writev([len(self._sizes).to_bytes(4, "little"), offsets.tobytes(), self._description])
        spilled = self._total - self._holding
        for start in range(0, spilled, CHUNK):
            assert self._file is not None
            self.target.write(self._file.read(start, min(start + CHUNK, spilled)))
        self.target.writev(self._held)


def _encoding(field: str) -> str:
    """Return the encoding of the column of a field."""
    if field == KEY:
        return "str"
    kind, last = _CODER.kind(field), field.lower().rpartition(".")[2]
    if kind is None or is_compressed(field):
        return "bytes"
    if kind.name == "picture":
        return {"jpg": "jpeg", "jpeg": "jpeg", "png": "png"}.get(last, "bytes")
    return {"text": "str", "lines": "str", "integer": "str_int", "json": "json"}.get(kind.name, "bytes")
