"""Rules of other readers, which may refuse or misread a valid archive: `check --target`.

The rules, each with its source (code that was read, or run):

all         Only regular files are read; links and devices are skipped. Readers in Python use its tarfile, which
            combines several extension headers of an entry, where GNU tar and tarkit take the last of a kind, and takes
            times in headers of GNU tar --incremental for directories, and fails at a global PAX header that no entry
            follows (Python 3.11 to 3.14). `_NAME_RULE`
            splits names into key and field: it makes a file such as `a/.hidden` a sample `a/`, and does not match a
            name with a line break in a directory with a dot. (webdataset 1.0.2 `tariterators.base_plus_ext`, run; the
            same in Hugging Face datasets `packaged_modules/webdataset`, Ray Data `webdataset_datasource`, Energon.)
webdataset  Two fields of a sample that are equal in lower case are an error, and so are the reserved `__key__` and
            `__url__`, and `__local_path__`, which replaces a first field of that name. A sample with a field `__bad__`
            that is not empty is dropped. Names that begin with a component `__x__` are skipped. Decodes gz, bz2 and xz;
            other codecs not or not with each Python. (1.0.2 `tariterators`, run.)
hf          The first five samples of the first shard must have the same fields, which are all columns of the dataset; a
            sample that lacks one has null there; without samples there it fails. Fields are not converted to lower
            case, names must be UTF-8. Names that begin with `.` or `__` are skipped. Codecs are those of webdataset.
            Contents: see `hf`. (datasets 5.2.0, run.)
dali        wds2idx reads the printed listing of GNU tar: names must be ASCII (older versions), or are escaped outside a
            UTF-8 locale (2.4.0); escaped backslashes and control characters become part of the name. Blanks separate
            the columns of its index. A file without a dot becomes a sample. Offsets are computed from the header after
            an entry (older versions), so a PAX header in between makes them wrong, or from where GNU tar finds its
            headers (2.4.0), which is wrong for a name in a GNU header. Without an index DALI ignores PAX headers, and
            so the end of a long name. Compressed shards have no offsets. (DALI `tools/wds2idx.py`; 2.4.0 run.)
energon     Keys must be unique in the whole set (`sample_key UNIQUE` in its index), and each shard has samples. Offsets
            require plain archives. Names are skipped as in webdataset. (Megatron-Energon 7.4.1 `prepare.py`, run.)
ray         `__key__` is an error and `__url__` is overwritten. A sample with a field `__bad__` that is not empty is
            dropped. Names must be UTF-8: a worker process dies of others. A scattered sample is an error. Decodes gz,
            bz2 and xz, and by the suffix of the file: .zst, .lz4. Its default decoder reads fields by the
            last part of their names, in lower case only, and refuses those of pickle and torch; `decoder=None` reads
            bytes. (Ray Data 2.60.0 `webdataset_datasource`, run.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, get_args

from tarkit.checking.fieldsets import listed
from tarkit.checking.findings import Finding
from tarkit.checking.hf import FIRST, HfContents
from tarkit.errors import show
from tarkit.samples.sample import KEYLESS, key_of, split_name
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry

Target = Literal["webdataset", "hf", "dali", "energon", "ray"]
TARGETS: tuple[Target, ...] = get_args(Target)

_READ = (*block.FILES, block.GNU_SPARSE)
_NAME_RULE = re.compile(rb"^((?:.*/|)[^.]+)[.]([^/]*)$")
_META = re.compile(rb"__[^/]*__($|/)")
_RESERVED = {
    "webdataset": frozenset((b"__key__", b"__url__", b"__local_path__")),
    "ray": frozenset((b"__key__", b"__url__")),
    "hf": frozenset((b"__key__", b"__url__")),
}
_BY_TARFILE = ("gz", "bz2", "xz")  # codecs that tarfile decodes with each Python
_CODECS = {"webdataset": _BY_TARFILE, "hf": _BY_TARFILE, "ray": _BY_TARFILE, "dali": (), "energon": ()}
_RAY_SUFFIXES = (".zst", ".lz4")
_RAY_DECODES = frozenset(b"txt text cls cls2 jpg png ppm pgm pbm pnm json npy mp".split())
_RAY_REFUSES = frozenset(b"pt pth pickle pkl".split())


def has_times(header: bytes) -> bool:
    """Return whether a header of GNU tar has something, as --incremental writes times, where others have the prefix."""
    return header[257:265] == b"ustar  \0" and header[345:346] not in (b"", b"\0")


def _extensions(headers: bytes) -> set[bytes]:
    """Return the types of the extension headers that an entry begins with."""
    kinds, at = set(), 0
    while (kind := headers[at + 156 : at + 157]) in block.EXTENSIONS:
        kinds.add(kind)
        size = block.parse_number(headers[at + 124 : at + 136])
        at += block.BLOCK + size + block.padding(size)
    return kinds


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_as(name: bytes) -> str:
    """Return words about what webdataset and readers with the same rule make of a name without a key."""
    match = _NAME_RULE.match(name)
    return f", but webdataset makes a sample {show(match[1])} of it, between two samples or inside one" if match else ""


class ReaderRules:
    """The rules of one reader for one shard; `index` is the index of the shard."""

    def __init__(self, reader: str, shard: str, index: int) -> None:
        self.reader = reader
        self.shard = shard
        self.index = index
        self._seen = 0
        self._global_header: int | None = None  # the offset of one that no entry has followed
        self._keyless_sample = False  # the reader makes a sample of an entry without a key
        self._columns: frozenset[bytes] = frozenset()
        self._contents = HfContents(shard, index) if reader == "hf" else None
        self._decoded: set[bytes] = set()  # fields that ray decodes

    def opened(self, path: str | None, codec: str | None) -> Iterator[Finding]:
        """Yield findings about the shard as a file: its codec and its name."""
        named = self.reader == "ray" and path is not None and path.endswith(_RAY_SUFFIXES)
        if codec is not None and codec not in _CODECS[self.reader] and not named:
            repair = "tarkit cat SHARD -o PLAIN.tar"
            if _CODECS[self.reader]:
                yield self._finding("refuses", 0, None, f"{self.reader} does not decode {codec}", repair)
            else:
                yield self._finding(
                    "refuses", 0, None, f"{self.reader} needs offsets in a plain archive, not {codec}", repair
                )

    def entry(self, entry: Entry, source: Source) -> Iterator[Finding]:
        """Yield findings about an entry, whose content can be read."""
        name, start, kind = entry.name, entry.start, entry.type
        self._global_header = start if kind == block.PAX_GLOBAL else None
        if kind in KEYLESS:
            return
        key = key_of(entry)
        if kind not in _READ:
            if key is not None:
                yield self._finding("misreads", start, key, f"{show(name)} is a link or device: {self.reader} skips it")
            return
        if self.reader == "dali":
            yield from self._dali(entry, key)
            return
        match = _NAME_RULE.match(name)
        if self._hidden(name):
            if key is not None:
                yield self._finding("misreads", start, key, f"{self.reader} skips the name {show(name)}")
        elif (match and (match[1], match[2])) != split_name(name):
            self._keyless_sample = True
            words = f"makes a sample {show(match[1])} of" if match else "ignores"
            yield self._finding("misreads", start, key, f"{self.reader} {words} {show(name)}")
        elif self.reader in ("hf", "ray") and not _is_utf8(name):
            yield self._finding("refuses", start, key, f"{self.reader} requires UTF-8, not {show(name)}")
        elif self._contents is not None and key is not None and not entry.sparse:
            yield from self._contents.entry(key, entry, source)

    def sample(self, key: bytes, start: int, entries: Iterable[Entry]) -> Iterator[Finding]:
        """Yield findings about the fields of a sample: regular files that the reader does not skip."""
        cut = len(key) + 1
        read = [entry for entry in entries if entry.type in _READ and not self._hidden(entry.name)]
        names = [entry.name[cut:] for entry in read]
        spelled = [name.lower() for name in names] if self.reader == "webdataset" else names
        reserved = _RESERVED.get(self.reader, frozenset()) & set(spelled)
        if reserved:
            detail = f"{show(key)} has {listed(reserved)}, which {self.reader} adds to each sample"
            replaced = (
                self.reader == "hf"
                or (self.reader == "ray" and reserved == {b"__url__"})
                or (reserved == {b"__local_path__"} and spelled[0] == b"__local_path__")
            )
            yield self._finding("misreads" if replaced else "refuses", start, key, detail)
        if self.reader in ("webdataset", "ray") and any(
            entry.size for entry, name in zip(read, spelled, strict=True) if name == b"__bad__"
        ):
            detail = f"{self.reader} drops {show(key)}, which has the field '__bad__'"
            yield self._finding("misreads", start, key, detail)
        if self.reader == "webdataset" and len(set(spelled)) < len(set(names)):
            equal = {name for name in names if spelled.count(name.lower()) > 1}
            detail = f"{show(key)} has {listed(equal)}, which are one field for webdataset"
            yield self._finding("refuses", start, key, detail, "rename one: tarkit cat -f 'NEW:OLD ...'")
        if self.reader == "ray":
            yield from self._ray(key, start, names)
        if self.reader == "hf":
            yield from self._hf(key, start, frozenset(names))

    def closed(self, samples: int) -> Iterator[Finding]:
        """Yield findings about the whole shard."""
        if self._global_header is not None and self.reader != "dali":
            detail = f"Python's tarfile, which {self.reader} uses, fails at a global header that no entry follows"
            yield self._finding("refuses", self._global_header, None, detail, "tarkit check SHARD --fix COPY")
        if self._contents is not None:
            yield from self._contents.closed()
        if self._decoded:
            detail = f"ray decodes {listed(self._decoded)}, unless decoder=None: such contents are not checked"
            yield Finding("reader-unchecked", self.shard, None, None, detail, "note")
        if samples == 0 and not self._keyless_sample:
            refused = {"dali": "wds2idx", "energon": "energon", "hf": "" if self.index else "hf, as the first one,"}
            if reader := refused.get(self.reader):
                yield self._finding("refuses", None, None, f"{reader} refuses a shard without samples", "leave it out")

    def _taken(self, name: bytes) -> tuple[bytes, ...] | None:
        """Return key and field that the reader has of a name, None if it ignores the name."""
        match = _NAME_RULE.match(name)
        return None if match is None or self._hidden(name) else match.groups()

    def _hidden(self, name: bytes) -> bool:
        if self.reader == "hf":
            return name.rpartition(b"/")[2].startswith((b".", b"__"))
        return self.reader in ("webdataset", "energon") and _META.match(name) is not None

    def _ray(self, key: bytes, start: int, names: list[bytes]) -> Iterator[Finding]:
        for name in names:
            last = name.rpartition(b".")[2]
            if last in _RAY_DECODES and not name.startswith(b"__"):
                self._decoded.add(name)
            elif last in _RAY_REFUSES and not name.startswith(b"__"):
                detail = f"ray refuses to decode the field {show(name)} of {show(key)}, which may run code"
                yield self._finding("refuses", start, key, detail, "read_webdataset(..., decoder=None) reads bytes")

    def _hf(self, key: bytes, start: int, names: frozenset[bytes]) -> Iterator[Finding]:
        if self.index:  # columns are those of the first shard
            return
        self._seen += 1
        if self._seen == 1:
            self._columns = names
        elif names != self._columns:
            lacks, more = self._columns - names, names - self._columns
            words = [f"lacks {listed(lacks)}"] * bool(lacks) + [f"has the additional {listed(more)}"] * bool(more)
            detail = f"{show(key)} {' and '.join(words)}, compared with the first sample"
            if self._seen <= FIRST:
                yield self._finding(
                    "refuses", start, key, f"{detail}: hf requires the same fields in the first {FIRST}"
                )
            elif more:
                yield self._finding("misreads", start, key, f"{detail}: hf has no column for it")

    def _dali(self, entry: Entry, key: bytes | None) -> Iterator[Finding]:
        name, start = entry.name, entry.start
        if not name.isascii():
            yield self._finding("refuses", start, key, f"wds2idx requires ASCII, not {show(name)}")
        elif b"\\" in name or any(byte < 32 or byte == 127 for byte in name):
            yield self._finding(
                "misreads", start, key, f"wds2idx uses the escaped name that tar prints for {show(name)}"
            )
        elif b" " in name:
            yield self._finding("misreads", start, key, f"a blank separates columns in DALI's index: {show(name)}")
        if key is None and not name.rpartition(b"/")[2].startswith(b"."):
            self._keyless_sample = True
            yield self._finding("misreads", start, key, f"wds2idx makes a sample of {show(name)}, which has no dot")
        if entry.sparse:
            yield self._finding("misreads", start, key, f"wds2idx gives a wrong offset to {show(name)}, a sparse file")

    def extended(self, entry: Entry, before: Entry | None, headers: bytes) -> Iterator[Finding]:
        """Yield findings about an entry with extension headers, or times; `headers` are these and its own header.

        The entry before it is also given.
        """
        if self.reader != "dali":
            yield from self._by_tarfile(entry, headers)
            return
        kinds, header = _extensions(headers), headers[-block.BLOCK :]
        wrong: list[tuple[Entry, str]] = []
        if kinds & {block.GNU_LONG_NAME, block.GNU_LONG_LINK}:
            wrong.append((entry, "the GNU header before it makes wds2idx compute a wrong offset for"))
        if kinds & {block.PAX, block.SOLARIS_X}:
            if before is not None:
                wrong.append((before, "the PAX header after it makes older versions of wds2idx misplace"))
            parts = split_name(entry.name)
            if parts is not None and not header[:100].partition(b"\0")[0].endswith(b"." + parts[1]):
                wrong.append((entry, "without an index DALI does not find the field, named in a PAX header, of"))
        for misplaced, detail in wrong:
            if misplaced.type in _READ:
                key, repair = key_of(misplaced), "tarkit index --format dali"
                yield self._finding("misreads", misplaced.start, key, f"{detail} {show(misplaced.name)}", repair)

    def _by_tarfile(self, entry: Entry, headers: bytes) -> Iterator[Finding]:
        """Yield a finding if Python's tarfile, which the reader uses, has another name for an entry."""
        import tarfile
        from io import BytesIO

        if entry.type not in _READ:
            return
        try:
            with tarfile.open(fileobj=BytesIO(headers), encoding="utf-8") as file:
                member = file.next()
        except (tarfile.TarError, ValueError):
            member = None
        name = b"" if member is None else member.name.encode("utf-8", "surrogateescape")
        if name != entry.name.rstrip(b"/") and self._taken(name) != self._taken(entry.name):
            detail = f"Python's tarfile, which {self.reader} uses, reads {show(name)}, not {show(entry.name)}"
            yield self._finding(
                "misreads",
                entry.start,
                key_of(entry),
                detail,
                "pack the files again: tarkit extract, then tarkit shard",
            )

    def _finding(
        self, does: str, offset: int | None, key: bytes | None, detail: str, repair: str | None = None
    ) -> Finding:
        return Finding(f"reader-{does}", self.shard, offset, key, detail, "error", repair)
