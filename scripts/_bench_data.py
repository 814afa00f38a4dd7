"""Data of the benchmark: sets of samples and one large entry, with reproducible bytes."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

BLOCK = 512
RECORD = 20 * BLOCK
VERSION = 1  # of the bytes; increase it when they change, so that old data are not used
_HEADER = struct.Struct("100s8s8s8s12s12s8sc100s8s247x")
_NO_FILES = b"xgLK5"  # extension headers and directories
MANY = 1000  # shards of the set many


class Content(NamedTuple):
    """The content of an archive; a copy must have the same."""

    entries: int
    size: int  # of the payloads, in bytes


class Dataset(NamedTuple):
    """The files of a set; npy, tree and large have files beside the archive, npy and large also lists of them."""

    directory: Path

    @property
    def tar(self) -> Path:
        """All samples, in order."""
        return self.directory / "all.tar"

    @property
    def shards(self) -> list[Path]:
        """The archives of the set many, in order."""
        return [self.directory / f"{index:04d}.tar" for index in range(MANY)]

    @property
    def fewer(self) -> Path:
        """The entries of the set wide, in samples of half as many."""
        return self.directory / "fewer.tar"

    @property
    def files(self) -> Path:
        """The directory of the files that the archive was made from."""
        return self.directory / "files"

    @property
    def recipe(self) -> Path:
        """The recipe that makes the archive from the files."""
        return self.directory / "recipe"

    @property
    def list(self) -> Path:
        """Names of the files, relative to their directory, for GNU tar's -T."""
        return self.directory / "list"


def header(name: str, size: int) -> bytes:
    """Return a USTAR header of a regular file."""
    zero = b"%07o\0" % 0
    fields = (b"%07o\0" % 0o644, zero, zero, b"%011o\0" % size, b"%011o\0" % 0, b" " * 8, b"0", b"", b"ustar\x0000")
    block = _HEADER.pack(name.encode(), *fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def entry(name: str, content: bytes) -> bytes:
    """Return a header, the content and its padding."""
    return header(name, len(content)) + content + bytes(-len(content) % BLOCK)


def marker(size: int) -> bytes:
    """Return the end of an archive whose entries take `size` bytes: two zero blocks, and zeros up to a whole record."""
    return bytes(2 * BLOCK + -(size + 2 * BLOCK) % RECORD)


def npy(value: int) -> tuple[bytes, bytes]:
    """Return what numpy.save writes for ones((64, 64)) * value and for array(value)."""
    matrix = _npy_head("<f8", "(64, 64)") + struct.pack("<d", value) * (64 * 64)
    return matrix, _npy_head("<i8", "()") + struct.pack("<q", value)


def _npy_head(descr: str, shape: str) -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + text.ljust(117).encode() + b"\n"


def _tiny(part: Dataset, final: Dataset, samples: int) -> None:
    numbers = random.Random(VERSION)

    def entries() -> Iterator[bytes]:
        for index in range(samples):
            yield entry(f"{index:08d}.bin", numbers.randbytes(200))
            yield entry(f"{index:08d}.cls", b"%d" % (index % 1000))

    with part.tar.open("wb") as tar:
        _write(tar, entries())


def _labels(part: Dataset, final: Dataset, samples: int) -> None:
    numbers = random.Random(VERSION)

    def entries() -> Iterator[bytes]:
        for index in range(samples):
            record = {"id": index, "width": numbers.randrange(2000), "tags": ["a", "b"]}
            yield entry(f"{index:08d}.cls", b"%d" % numbers.randrange(1000))
            yield entry(f"{index:08d}.json", json.dumps(record).encode())

    with part.tar.open("wb") as tar:
        _write(tar, entries())


def _wide(part: Dataset, final: Dataset, samples: int) -> None:
    """Write samples of 100 entries; and the same entries in samples of 50."""
    for path, fields in ((part.tar, 100), (part.fewer, 50)):
        entries = (
            entry(f"{index // fields:08d}.f{index % fields:02d}", b"%08d" % index) for index in range(100 * samples)
        )
        with path.open("wb") as tar:
            _write(tar, entries)


def _many(part: Dataset, final: Dataset, samples: int) -> None:
    """Write shards of samples of one entry."""
    numbers = random.Random(VERSION)
    size = samples // MANY
    for number, path in enumerate(part.shards):
        with path.open("wb") as tar:
            keys = range(number * size, (number + 1) * size)
            _write(tar, (entry(f"{key:08d}.bin", numbers.randbytes(200)) for key in keys))


def _packed(part: Dataset, final: Dataset, samples: int) -> None:
    """Write as tiny, and compress it."""
    _tiny(part, final, samples)
    with part.tar.open("rb") as tar, gzip.open(f"{part.tar}.gz", "wb", compresslevel=6) as packed:
        shutil.copyfileobj(tar, packed, 1 << 20)
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-q", part.tar], check=True)


def _large(part: Dataset, final: Dataset, size: int) -> None:
    """Write one entry of zeros, `size` MiB of them, and its file; both are sparse."""
    part.files.mkdir()
    part.recipe.write_text(f"zeros.bin\tfile:{final.files / 'zeros.bin'}\n")
    with (part.files / "zeros.bin").open("wb") as file:
        file.truncate(size << 20)
    with part.tar.open("wb") as tar:
        head = header("zeros.bin", size << 20)
        tar.write(head)
        length = len(head) + (size << 20)
        tar.truncate(length + len(marker(length)))


def _wds(part: Dataset, final: Dataset, samples: int) -> None:
    """Write as webdataset's TarWriter does: with a PAX header with the time before every entry."""
    _by_tarfile(part.tar, samples, tarfile.PAX_FORMAT, "{:08d}.{}", 1_700_000_000.25)


def _long(part: Dataset, final: Dataset, samples: int) -> None:
    """Write as GNU tar does, with names of more than 100 bytes."""
    _by_tarfile(part.tar, samples, tarfile.GNU_FORMAT, "d" * 100 + "/{:08d}.{}", 0)


def _by_tarfile(path: Path, samples: int, format: int, name: str, mtime: float) -> None:
    numbers = random.Random(VERSION)
    with tarfile.open(path, "w", format=format) as tar:
        for index in range(samples):
            for field, content in (("bin", numbers.randbytes(200)), ("cls", b"%d" % (index % 1000))):
                info = tarfile.TarInfo(name.format(index, field))
                info.size, info.mode, info.mtime, info.uname = len(content), 0o444, mtime + index, "bigdata"
                tar.addfile(info, io.BytesIO(content))


def _npy(part: Dataset, final: Dataset, samples: int) -> None:
    part.files.mkdir()

    def entries() -> Iterator[bytes]:
        for index in range(samples):
            for field, content in zip(("input", "output"), npy(index), strict=True):
                name = f"arr_{index:06d}.{field}.npy"
                (part.files / name).write_bytes(content)
                recipe.write(f"{name}\tfile:{final.files / name}\n")
                names.write(f"{name}\n")
                yield entry(name, content)

    with part.tar.open("wb") as tar, part.recipe.open("w") as recipe, part.list.open("w") as names:
        _write(tar, entries())


def _tree(part: Dataset, final: Dataset, samples: int) -> None:
    numbers = random.Random(VERSION)

    def entries() -> Iterator[bytes]:
        for index in range(samples):
            directory = f"class{index // 1000:03d}"
            (part.files / directory).mkdir(parents=True, exist_ok=True)
            picture = numbers.randbytes(500 + index % 1000)
            for field, content in (("cls", b"%d" % (index // 1000)), ("jpg", picture)):
                name = f"{directory}/{index:08d}.{field}"
                (part.files / name).write_bytes(content)
                yield entry(name, content)

    with part.tar.open("wb") as tar:
        _write(tar, entries())


def _write(tar: BinaryIO, entries: Iterator[bytes]) -> None:
    for piece in entries:
        tar.write(piece)
    tar.write(marker(tar.tell()))


# name -> samples, bytes on disk of one sample, maker
SETS: dict[str, tuple[int, int, Callable[[Dataset, Dataset, int], None]]] = {
    "tiny": (100_000, 2048, _tiny),
    "labels": (100_000, 2048, _labels),
    "wds": (50_000, 4096, _wds),
    "long": (50_000, 4096, _long),
    "wide": (3000, 200 << 10, _wide),
    "npy": (20_000, 80 << 10, _npy),
    "tree": (100_000, 12 << 10, _tree),
    "packed": (100_000, 2048, _packed),
    "empty": (0, 0, _tiny),
    "large": (4096, 1 << 20, _large),  # MiB of one entry
    "many": (10_000_000, 1024, _many),
}


def dataset(place: Path, name: str, part: int) -> Dataset:
    """Return the paths of one `part`-th of the set `name`, which may not exist yet."""
    return Dataset(place / f"{name}-{SETS[name][0] // part}-v{VERSION}")


def needs(name: str) -> int:
    """Return about how many bytes a set takes on the disk."""
    samples, size, _ = SETS[name]
    return samples * size


def make(place: Path, name: str, part: int) -> Content:
    """Make one `part`-th of the set `name` under `place`, unless it exists; return its content."""
    final = dataset(place, name, part)
    if not final.directory.exists():
        samples, _, maker = SETS[name]
        need = 2 * needs(name) // part
        if shutil.disk_usage(place).free < need:
            raise OSError(
                f"{place}: {name} and what is made of it want {need >> 20} MiB of disk; name another --data DIR"
            )
        draft = Path(tempfile.mkdtemp(dir=place, prefix=f"{name}.part-"))
        try:
            maker(Dataset(draft), final, samples // part)
            draft.rename(final.directory)
        except OSError:
            if not final.directory.exists():  # else another benchmark was faster
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    found = [content(path) for path in ([final.tar] if final.tar.exists() else final.shards)]
    return Content(*map(sum, zip(*found, strict=True)))


def content(path: Path) -> Content:
    """Count the files of an archive by its headers.

    Raises:
        ValueError: it is not an archive, or has no end.
    """
    entries = total = pos = 0
    with path.open("rb", buffering=0) as file:
        while True:
            block = os.pread(file.fileno(), BLOCK, pos)
            if len(block) < BLOCK:
                raise ValueError(f"an output ends at {pos} without an end-of-archive marker")
            if not block.strip(b"\0"):
                return Content(entries, total)
            size = int(block[124:135], 8)
            if block[156] not in _NO_FILES:
                entries += 1
                total += size
            pos += BLOCK + size + -size % BLOCK
