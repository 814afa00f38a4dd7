"""webdataset's writers over `tarkit.TarWriter`: samples are dicts, and files get their names when they are complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Self

from tarkit.errors import MissingLibrary, Usage
from tarkit.media import coding_pictures
from tarkit.media.coding import extension, is_compressed, name_error
from tarkit.media.coding_gzip import compress
from tarkit.shards import from_values

_JPEG = frozenset(("jpg", "jpeg"))
_PICTURES = _JPEG | {"png", "pbm", "pgm", "ppm", "tif", "tiff"}


def _picture(field: str, value: Any) -> Any:
    """Return a picture as webdataset writes it: pixels from 0 to 1 cut to whole numbers, JPEG of quality 100."""
    name = extension(field)
    if name not in _PICTURES or isinstance(value, (bytes, bytearray, memoryview, str)):
        return value
    floats = str(getattr(value, "dtype", "")) in ("float32", "float64") and value.size
    if floats and value.min() > -0.001 and value.max() < 1.001:
        value = (value.clip(0, 1) * 255).astype("uint8")
    if name not in _JPEG:
        return value
    try:
        data = coding_pictures.encode("JPEG", name, value, quality=100)
    except MissingLibrary:
        raise
    except Exception as error:
        raise name_error(field, "cannot be encoded", error) from error
    return compress(data) if is_compressed(field) else data


class DictTarWriter:
    """Write samples to an archive: dicts with `__key__`, whose fields are written in the order of their names."""

    def __init__(
        self,
        fileobj: str | os.PathLike[str] | BinaryIO,
        *,
        encoder: bool = True,
        compress: bool | str | None = None,
        mtime: float | None = None,
        allow_pickle: bool = True,
        storage_options: Mapping[str, object] | None = None,
        **other: Any,
    ) -> None:
        """Open the archive.

        Args:
            fileobj: a path, a URL or a binary file object, as for `tarkit.TarWriter`.
            encoder: whether values are encoded by the names of their fields; if not, they are bytes.
            compress: True for gzip, or a codec, whatever the suffix; False for none.
            mtime: the time of all entries in seconds since 1970; by default 0, so that the same samples give the same
                bytes.
            allow_pickle: write pickles, of `pyd`, `pickle`, `pth` and arrays of objects, as webdataset does.
            storage_options: as for `tarkit.open`.
            other: options of webdataset that are not here: an error that says so.

        Raises:
            Usage: an option that is not here.
        """
        for name in other:
            hints = {"keep_meta": "give such fields names without _", "format": "names that are too long use PAX"}
            raise Usage(f"tarkit.wds.TarWriter has no {name}", hints.get(name, "headers are those of tarkit.TarWriter"))
        if not isinstance(encoder, bool):
            raise Usage("encoder is True or False", "encode values before write() in another way")
        self._encoder = encoder
        codec = ("gz" if compress else "none") if isinstance(compress, bool) else compress
        self._writer = from_values.TarWriter(
            fileobj,
            compress=codec,
            mtime=int(mtime or 0),
            encoder=encoder,
            allow_pickle=allow_pickle and encoder,
            storage_options=storage_options,
        )

    def write(self, sample: Mapping[str, Any]) -> int:
        """Write a sample; items that begin with `_` are not written. Return the bytes of its values."""
        key = sample["__key__"]
        fields = {name: sample[name] for name in sorted(sample) if not name.startswith("_")}
        if self._encoder:
            fields = {name: _picture(name, value) for name, value in fields.items()}
        before = self._writer.content
        self._writer.write(key, fields)
        return self._writer.content - before

    def close(self) -> None:
        """Complete the archive."""
        self._writer.close()

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)


class DictShardWriter:
    """Write samples to shards: the next one begins behind `maxcount` samples, or `maxsize` bytes of values or more."""

    def __init__(
        self,
        pattern: str,
        maxcount: int = 100_000,
        maxsize: float = 3e9,
        post: Callable[[str], Any] | None = None,
        start_shard: int = 0,
        verbose: int = 0,
        **options: Any,
    ) -> None:
        """Open the first shard.

        Args:
            pattern: the names, with `%06d` for the number.
            maxcount: samples in a shard.
            maxsize: bytes of values from which on a shard is full.
            post: called with the name of each shard when it is complete.
            start_shard: the number of the first shard.
            verbose: has no effect.
            options: as for `DictTarWriter`.
        """
        self.pattern = pattern
        self.maxcount = maxcount
        self.maxsize = maxsize
        self.post = post
        self.shard = start_shard
        self.total = self.count = self.size = 0
        self._options = options
        self._writer: DictTarWriter | None = None
        self._closed = False
        self.next_stream()

    def next_stream(self) -> None:
        """Complete the shard, and open the next one."""
        self.finish()
        self.fname = self.pattern % self.shard
        self.shard += 1
        self.count = self.size = 0
        self._writer = DictTarWriter(self.fname, **self._options)

    def write(self, sample: Mapping[str, Any]) -> None:
        """Write a sample."""
        if self._closed:
            raise Usage(f"{self.fname}: the writer is closed")
        if self._writer is None or self.count >= self.maxcount or self.size >= self.maxsize:
            self.next_stream()
        assert self._writer is not None
        self.size += self._writer.write(sample)
        self.count += 1
        self.total += 1

    def finish(self) -> None:
        """Complete the shard."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            if self.post is not None:
                self.post(self.fname)

    def close(self) -> None:
        """Complete the last shard."""
        self.finish()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        elif self._writer is not None:
            self._writer.__exit__(kind, error, trace)


TarWriter, ShardWriter = DictTarWriter, DictShardWriter  # webdataset's names
