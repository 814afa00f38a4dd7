"""The input of a decoder: bytes that were read and not yet used, and the errors that they may be the reason of."""

from __future__ import annotations

from collections.abc import Callable

from tarkit.errors import Problem
from tarkit.streams.codecs.registry import Codec

CHUNK = 256 << 10  # bytes asked for at a time; the libraries copy what they have not used, so more would cost time


class Input:
    """The compressed bytes: those that were read and are not yet used, then those to come."""

    def __init__(self, codec: Codec, read: Callable[[int], bytes], archive: str) -> None:
        self.codec = codec
        self.archive = archive
        self._read = read
        self._data = b""
        self._at = 0
        self._total = 0
        self._ended = False

    def more(self) -> bytes:
        """All bytes at hand, or the next to come; b"" at the end."""
        data = self._data[self._at :] or self._fetch()
        self._data, self._at = b"", 0
        return data

    def back(self, data: bytes) -> None:
        """Take back the last bytes of what `more` returned, unused."""
        self._data, self._at = data, 0

    def peek(self, n: int) -> bytes:
        """The next n bytes, fewer at the end; they stay."""
        while len(self._data) - self._at < n:
            data = self._fetch()
            if not data:
                break
            self._data, self._at = self._data[self._at :] + data, 0
        return self._data[self._at : self._at + n]

    def take(self, n: int) -> bytes:
        """The next n bytes; if there are fewer, the stream was cut."""
        data = self.peek(n)
        if len(data) < n:
            raise self.cut()
        self._at += n
        return data

    def at_hand(self) -> int:
        """How many bytes there are without waiting for more."""
        return len(self._data) - self._at

    def drop(self, n: int) -> None:
        """Pass over n bytes; if there are fewer, the stream was cut."""
        while n > 0:
            n -= len(self.take(min(n, CHUNK)))

    def take_text(self) -> bytes:
        """The bytes up to and with the next zero byte; if there is none, the stream was cut."""
        text = b""
        while len(text) < CHUNK:
            data = self.more()
            if not data:
                raise self.cut()
            end = data.find(b"\0") + 1
            text += data[: end or None]
            if end:
                self.back(data[end:])
                return text
        raise self.damaged("a text in its header has no end")

    def skip_zeros(self) -> int:
        """Pass over zero bytes; how many there were."""
        count = 0
        while data := self.more():
            rest = data.lstrip(b"\0")
            count += len(data) - len(rest)
            if rest:
                self.back(rest)
                break
        return count

    def cut(self, where: str | None = None) -> Problem:
        """The error of a stream that ends too early."""
        return self.problem(
            "truncated",
            f"the {self.codec.name} stream ends inside {where or f'a {self.codec.unit}'}"
            f" (after {self._total} compressed bytes)",
            "the file was not written or not copied to its end: copy or make it again",
        )

    def damaged(self, why: object) -> Problem:
        """The error of a stream with wrong bytes."""
        return self.problem("bad-data", f"the {self.codec.name} stream is damaged: {why}")

    def problem(self, name: str, detail: str, hint: str | None = None) -> Problem:
        """An error of this archive. The offset is unknown: it would be one of decoded bytes."""
        return Problem(name, self.archive, None, detail, hint)

    def _fetch(self) -> bytes:
        data = b"" if self._ended else self._read(CHUNK)
        self._ended = not data
        self._total += len(data)
        return data
