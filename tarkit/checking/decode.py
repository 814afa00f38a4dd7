"""Decode the content of chosen fields: is it whole?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tarkit.checking.findings import Finding
from tarkit.errors import MissingLibrary, Usage, show, spell
from tarkit.media.coding import KINDS, extension
from tarkit.media.limits import NotDecoded, decode_limit, limit_words
from tarkit.media.whole import content_fault, is_decodable, load_decoder
from tarkit.samples.fields import parse_fields
from tarkit.samples.names import fold
from tarkit.sizes import plural
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.reader import Entry

ALL = "all"
MOST = 100  # fields of a shard with a note of their own


@dataclass(frozen=True)
class DecodedFields:
    """The fields whose content is decoded.

    Attributes:
        words: those of `--decode`.
        by_name: the word that names a field, in lower case, and the name that says how it is decoded.
        all: all fields with a decoder whose library is installed.
    """

    words: tuple[str, ...]
    by_name: dict[bytes, tuple[str, str]]
    all: bool

    def of(self, name: bytes) -> tuple[str, str] | None:
        """Return the word that names a field, and the name that says how it is decoded; None for one left alone."""
        if self.all:
            text = name.decode("utf-8", "surrogateescape")
            return (extension(text), text) if is_decodable(text) else None
        return self.by_name.get(fold(name))

    def check_of(self, shard: str) -> ContentCheck:
        """Return the check of a shard."""
        return ContentCheck(shard, self)

    def load(self) -> None:
        """Import the decoders. Raises MissingLibrary."""
        for _, name in self.by_name.values():
            load_decoder(name)


def parse_decoded(text: str) -> DecodedFields:
    """Return the fields of `'jpg png:mask'`, or of `all`.

    Raises:
        Usage: invalid words, or a name that no decoder is for.
    """
    if text.split() == [ALL]:
        return DecodedFields((), {}, True)
    by_name: dict[bytes, tuple[str, str]] = {}
    for word, choice in zip(text.split(), parse_fields(text), strict=True):
        name = (choice.new or choice.old[0]).decode("utf-8", "surrogateescape")
        if not is_decodable(name):
            known = " ".join(kind.fields for kind in KINDS)
            message = f"{spell('decode', word)}: tarkit does not decode {show(extension(name))}"
            other = "" if set("*?[") & set(name) else f"; png:{name} decodes the field as png"
            raise Usage(message, f"all decodes what can be: {known}{other}")
        for old in choice.old:
            by_name[fold(old)] = word, name
    return DecodedFields(tuple(text.split()), by_name, False)


@dataclass
class _Unchecked:
    """A field that is not decoded: of how many entries, and the first of them."""

    name: bytes
    offset: int
    key: bytes
    count: int = 0


@dataclass
class ContentCheck:
    """Decodes the chosen fields of a shard.

    Attributes:
        fields: which fields.
        decoded: how many contents were decoded, by the word of `--decode` or, for all, by the ending of the field; 0
            for a field whose contents were left alone.
    """

    shard: str
    fields: DecodedFields
    decoded: Counter[str] = field(default_factory=Counter)
    _unchecked: dict[tuple[bytes, str], _Unchecked] = field(default_factory=dict)

    def entry(self, entry: Entry, key: bytes, source: Source, located: bool = True) -> Iterator[Finding]:
        """Decode an entry if its field is chosen; yield what is wrong with it, at its offset if it is `located`."""
        name = entry.name[len(key) + 1 :]
        chosen = self.fields.of(name)
        if chosen is None:
            if self.fields.all:
                self._leave(entry, key, "has no decoder")
            return
        word, form = chosen
        self.decoded[word] += 0
        if entry.type not in block.FILES or entry.sparse:
            self._leave(entry, key, "is a sparse file" if entry.sparse else "is no regular file")
            return
        offset = entry.start if located else None
        try:
            if entry.size > (limit := decode_limit(0)):
                words = f"{show(entry.name)} is not decoded: {limit_words(entry.size, limit)}"
                yield Finding("unchecked-content", self.shard, offset, key, words)
                return
            fault = content_fault(form, source.read(entry.data, entry.data + entry.size))
        except NotDecoded as error:
            words = f"{show(entry.name)} is not decoded: {error}"
            yield Finding("unchecked-content", self.shard, offset, key, words)
            return
        except MissingLibrary as error:
            if not self.fields.all:
                raise
            self._leave(entry, key, f"is not decoded: {error}; {error.hint}")
            return
        self.decoded[word] += 1
        if fault is not None:
            yield Finding("bad-content", self.shard, offset, key, f"{show(entry.name)} cannot be decoded: {fault}")

    def _leave(self, entry: Entry, key: bytes, why: str) -> None:
        name = fold(entry.name[len(key) + 1 :])
        if len(self._unchecked) >= MOST and (name, why) not in self._unchecked:
            name, why = b"", "and other fields are not decoded"
        self._unchecked.setdefault((name, why), _Unchecked(entry.name, entry.start, key)).count += 1

    def merge(self, other: ContentCheck) -> None:
        """Add what another check has seen, of samples that follow."""
        self.decoded.update(other.decoded)
        for name, seen in other._unchecked.items():
            if name in self._unchecked:
                self._unchecked[name].count += seen.count
            else:
                self._unchecked[name] = seen

    def notes(self, located: bool = True) -> Iterator[Finding]:
        """Yield notes on the fields that were not decoded."""
        for (name, why), seen in self._unchecked.items():
            what = f"the field {show(name)} of {plural(seen.count, 'sample')}" if name else plural(seen.count, "entry")
            detail = f"{what} {why}; the first is {show(seen.name)}"
            offset = seen.offset if located else None
            yield Finding("unchecked-content", self.shard, offset, seen.key, detail, "note", None, seen.count)


def unused_words(fields: DecodedFields, decoded: Mapping[str, int]) -> Iterator[Finding]:
    """Yield the words of `--decode` that name a field of no sample: what they ask for was not checked."""
    for word in fields.words:
        if word not in decoded:
            detail, hint = (
                "no sample has this field, so nothing was decoded",
                "tarkit stats lists the fields of samples",
            )
            yield Finding("missing-field", spell("decode", word), None, None, detail, "error", hint)
