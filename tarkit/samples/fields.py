"""Select, order and rename the entries of samples: -f, --drop, --require, --rekey."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, repeat
from typing import Literal, NamedTuple

from tarkit import errors
from tarkit.errors import Problem, TarkitError, Usage, show, spell, spell_open
from tarkit.problems import Policy
from tarkit.samples.checks import duplicate_entries
from tarkit.samples.lookup import missing_field
from tarkit.samples.names import spelled
from tarkit.samples.sample import Assembly, SampleBatch, TarSample, key_of, split_name
from tarkit.streams.codecs.registry import DECODED, MESSAGE_SUFFIXES, ZIP
from tarkit.streams.source import Source
from tarkit.tar import block
from tarkit.tar.header import rename
from tarkit.tar.reader import Entry

OnMissing = Literal["error", "warn", "skip", "keep"]


SMALL = 1 << 14  # bytes of a sample that are copied through memory when names change

_SUFFIXES = sorted(
    {
        ".tar",
        ".view.parquet",
        ".parquet",
        *MESSAGE_SUFFIXES,
        *(suffix for codec in (*DECODED.values(), ZIP) for suffix in codec.suffixes),
    },
    key=len,
    reverse=True,
)
_ENDINGS = tuple(_SUFFIXES)


class FieldChoice(NamedTuple):
    """A requested field: its new name, if any, and alternative names, of which the first present one counts."""

    new: bytes | None
    old: tuple[bytes, ...]


def parse_choices(text: str, noun: str, forms: str, separators: str) -> Iterator[tuple[str | None, list[str]]]:
    """Yield (new name, alternatives) for each word of `'png new:old1,old2'`; `:` or `=` renames.

    Args:
        text: words separated by blanks.
        noun: the kind of thing that a word names, for messages.
        forms: the valid forms of a word, for messages.
        separators: the characters between alternatives; a comma needs a new name.

    Raises:
        Usage: a word has another form, or there is none.
    """
    words = text.split()
    for word in words:
        *new, old = re.split("[:=]", word, maxsplit=1)
        names = re.split(f"[{separators}]", old)
        if not all(names) or not all(new):
            raise Usage(f"invalid {noun} {show(word)}: it must be {forms}")
        if "," in old and not new:
            both, either = word.replace(",", " "), word.replace(",", ";") if ";" in separators else f"{names[0]}:{word}"
            raise Usage(
                f"{show(word)}: a comma separates alternatives, of which the first present one is used",
                f"{show(both)} for both, {show(either)} for either",
            )
        yield new[0] if new else None, names
    if not words:
        raise Usage(f"no {noun} given")


def parse_fields(text: str) -> list[FieldChoice]:
    """Return the fields of `'png new:old1,old2'`.

    Raises:
        Usage: the text has another form.
    """
    choices = []
    for new, names in parse_choices(text, "field", "NAME, NEW:OLD or NEW:OLD1,OLD2", ","):
        for name in (new or "", *names):
            if "/" in name:
                raise Usage(f"invalid field name {show(name)}: it contains a slash")
        choices.append(FieldChoice(None if new is None else os.fsencode(new), tuple(map(os.fsencode, names))))
    return choices


def field_names(text: str) -> list[str]:
    """Return the names that the fields of `'png new:old1,old2'` have in samples: png and new. Raises Usage."""
    return [os.fsdecode(new or old[0]) for new, old in parse_fields(text)]


def _glob(pattern: str) -> re.Pattern[bytes]:
    from fnmatch import translate

    return re.compile(os.fsencode(translate(pattern)), re.IGNORECASE)


@dataclass(eq=False, repr=False)
class Fields:
    """The options -f, --drop, --require, --on-missing-field and --rekey, applied in this order.

    `base` is the directory that `{dir}` of `rekey` is relative to, as `common_directory` returns it.

    Names of fields match by `names.spelled`, globs of `drop` match all fields in any case; fields that are not renamed
    keep their names. `rename` is applied first: pairs of an old name and a new one, which is empty to remove the field;
    all other fields stay. It excludes `keep`, which renames fields itself.
    """

    keep: list[FieldChoice] = field(default_factory=list)
    drop: tuple[str, ...] = ()
    require: list[tuple[bytes, ...]] = field(default_factory=list)
    on_missing: OnMissing = "error"
    rekey: str | None = None
    rename: tuple[tuple[bytes, bytes], ...] = ()
    base: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._drops = [_glob(pattern) for pattern in self.drop]
        self._rekey = None if self.rekey is None else _rekeyer(self.rekey, self.base)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the options; objects made from them cannot be pickled."""
        return Fields, (self.keep, self.drop, self.require, self.on_missing, self.rekey, self.rename, self.base)

    @property
    def all(self) -> bool:
        """Whether samples stay as they are."""
        return not (self.keep or self.drop or self.require or self.rename or self.rekey is not None)

    @property
    def numbers_keys(self) -> bool:
        """Whether a new key depends on the index of its sample."""
        return self.rekey is not None and ("{index" in self.rekey or "#" in self.rekey)

    def __call__(self, batches: Iterator[SampleBatch], policy: Policy) -> Iterator[SampleBatch]:
        """Yield the samples with the selected fields."""
        return batches if self.all else self._apply(batches, policy)

    def _apply(self, batches: Iterator[SampleBatch], policy: Policy) -> Iterator[SampleBatch]:
        index = seen = emptied = 0
        first = b""  # the key of the first sample without fields left
        unused = dict(zip(self._drops, self.drop, strict=True))
        for batch in batches:
            together = None if isinstance(batch, TarSample) else self._together(batch, index, policy, unused)
            if together is not None:
                index, seen = index + together.count, seen + together.count
                yield together
                continue
            for sample in batch:
                if sample.key is None:
                    if not self.keep:
                        yield sample
                    continue
                sample.complete()
                seen += 1
                chosen = self._choose(sample, policy, unused)
                if chosen == []:
                    emptied, first = emptied + 1, first or sample.key
                changed = self._with_key(sample, chosen, index, policy) if chosen else None
                if changed is not None:
                    index += 1
                    yield changed
        if emptied:
            counted = f"{emptied} samples, the first of them" if emptied > 1 else "1 sample,"
            policy.warn(f"no field is left of {counted} {show(first)}: left out")
        for glob in unused.values() if seen else ():
            policy.warn(f"{spell('drop')} {show(glob)} matches no field")

    def _with_key(
        self, sample: TarSample, chosen: list[tuple[Entry, bytes]], index: int, policy: Policy
    ) -> TarSample | None:
        """Return a sample of chosen entries with its new key; None if it is left out."""
        assert sample.key is not None
        key = sample.key
        if self._rekey is not None:
            key = self._rekey(key, index, sample.source.name)
            cut = len(sample.key)
            chosen = [(entry, key + name[cut:] if key_of(entry) else name) for entry, name in chosen]
        return _changed(sample, key, chosen, policy)

    def _together(
        self, batch: SampleBatch, index: int, policy: Policy, unused: dict[re.Pattern[bytes], str]
    ) -> SampleBatch | None:
        """Return plain samples with the same fields as they become; None if they are to be looked at one by one."""
        from tarkit.samples.changed import changed_batch  # not loaded for most runs
        from tarkit.samples.columns import groups_of

        groups = groups_of(batch)
        if groups is None or len(groups) > 1:
            return None
        fields, first = groups[0].fields, groups[0].first()
        needed = [*(choice.old for choice in self.keep), *self.require]
        if any(all(spelled(fields, name) is None for name in names) for names in needed):
            return None
        places, cut = {entry.start: place for place, entry in enumerate(first.entries)}, len(first.key or b"") + 1
        kept = [(places[entry.start], name[cut:]) for entry, name in self._choose(first, policy, unused) or ()]
        names = [name for _, name in kept]
        if not kept or len(set(names)) < len(names) or any(0 in name for name in names):
            return None
        keys: Sequence[bytes] = batch.keys  # type: ignore[assignment]
        if self._rekey is not None:
            try:
                keys = list(map(self._rekey, keys, count(index), repeat(batch.source.name)))
            except TarkitError:
                return None
        if keys is batch.keys and kept == list(enumerate(fields)):
            return batch

        def remade(begin: int, stop: int) -> Iterator[TarSample]:
            for number, sample in enumerate(batch.part(begin, stop), index + begin):
                changed = self._with_key(sample, self._choose(sample, policy, {}) or [], number, policy)
                assert changed is not None
                yield changed

        return changed_batch(batch, groups[0], keys, kept, remade)

    def _choose(
        self, sample: TarSample, policy: Policy, unused: dict[re.Pattern[bytes], str]
    ) -> list[tuple[Entry, bytes]] | None:
        """Return the entries to keep, in order, each with its name; None if the sample lacks a field and is dropped.

        A glob of --drop that matches is removed from `unused`.
        """
        entries = sample.entries
        assert sample.key is not None
        by_field: dict[bytes, Entry] = {}
        for entry in entries:
            if key_of(entry):
                by_field.setdefault(entry.name[len(sample.key) + 1 :], entry)
        chosen = [(entry, entry.name) for entry in entries]
        if self.rename:
            chosen = self._renamed(len(sample.key) + 1, chosen, by_field)
        if self.keep:
            hint = _hint_of_choice()
            kept = _kept(self.keep, sample.key, by_field, lambda names: self._missing(sample, names, policy, hint))
            if kept is None:
                return None
            chosen = kept
        for names in self.require:
            if all(spelled(by_field, name) is None for name in names) and not self._missing(sample, names, policy):
                return None
        if self._drops:
            skip, kept = len(sample.key) + 1, []
            for entry, name in chosen:
                matching = [glob for glob in self._drops if key_of(entry) and glob.match(entry.name[skip:])]
                for glob in matching:
                    unused.pop(glob, None)
                if not matching:
                    kept.append((entry, name))
            chosen = kept
        return chosen

    def _renamed(
        self, skip: int, chosen: list[tuple[Entry, bytes]], by_field: Mapping[bytes, Entry]
    ) -> list[tuple[Entry, bytes]]:
        """Return the entries with the new names of their fields, which begin at `skip`, without removed ones."""
        news = {spelled(by_field, old): new for old, new in self.rename}
        renamed = []
        for entry, name in chosen:
            new = news.get(name[skip:]) if key_of(entry) else None
            if new is None:
                renamed.append((entry, name))
            elif new:
                renamed.append((entry, name[:skip] + new))
        return renamed

    def _missing(self, sample: TarSample, names: tuple[bytes, ...], policy: Policy, hint: str | None = None) -> bool:
        """Whether a sample that lacks a field is kept."""
        problem = missing_field(sample, names)
        problem.hint = hint
        return pass_missing(problem, self.on_missing, policy)


def _hint_of_choice() -> str | None:
    """Return the hint for a chosen field that is missing: the command has an option, `select` no argument."""
    if errors.command_line is not None:
        return None
    return f"{spell_open('skip', 'missing-field')} leaves such samples out"


def pass_missing(problem: Problem, on_missing: OnMissing, policy: Policy) -> bool:
    """Return whether to keep a sample that lacks a field, as `problem` describes.

    Raises:
        Problem: `on_missing` is "error" and `policy` does not let it pass.
    """
    if on_missing != "error":
        policy.counts["missing-field"] += 1
    if on_missing == "skip":
        policy.dropped["missing-field"] += 1
        return False
    if on_missing == "warn":
        policy.say(problem)
    return on_missing != "error" or policy.apply(problem) == "keep"


def with_names(sample: TarSample, key: bytes, keep: list[FieldChoice] | None, policy: Policy) -> TarSample | None:
    """Return a sample with another key, whose fields are those that `keep` names; None if it is left out.

    Entries of several archives may have different keys: each keeps its field.
    """
    parts = [(entry, split_name(entry.name) if key_of(entry) is not None else None) for entry in sample.entries]
    chosen = [(entry, entry.name if part is None else key + b"." + part[1]) for entry, part in parts]
    if keep is not None:
        by_field: dict[bytes, Entry] = {}
        for entry, part in parts:
            if part is not None:
                by_field.setdefault(part[1], entry)
        kept = _kept(keep, key, by_field, lambda names: pass_missing(missing_field(sample, names), "error", policy))
        if kept is None:
            return None
        chosen = kept
    return _changed(sample, key, chosen, policy)


def _kept(
    keep: Iterable[FieldChoice],
    key: bytes,
    by_field: Mapping[bytes, Entry],
    missing: Callable[[tuple[bytes, ...]], bool],
) -> list[tuple[Entry, bytes]] | None:
    """Return the entries of chosen fields, each with its name; None if `missing` drops the sample for one it lacks."""
    kept = []
    for choice in keep:
        present = ((old, name) for old in choice.old if (name := spelled(by_field, old)) is not None)
        old, name = next(present, (b"", None))
        if name is not None:
            kept.append((by_field[name], key + b"." + (old if choice.new is None else choice.new)))
        elif not missing(choice.old):
            return None
    return kept


def _changed(sample: TarSample, key: bytes, chosen: list[tuple[Entry, bytes]], policy: Policy) -> TarSample | None:
    """Return a sample of these entries, each with its name; None if it is left out."""
    source = sample.source
    good = True
    before: set[bytes] = set()  # entries that keep their name, and precede this one
    for entry, name in chosen:
        if entry.type == block.HARD_LINK and entry.link not in before:
            after = any(entry.link == other.name == new for other, new in chosen)
            fate = "would come after it: give the fields in another order" if after else "is removed or renamed"
            message = f"{show(entry.name)} is a hard link to {show(entry.link)}, which {fate}"
            good = policy.apply(Problem("unmovable-entry", source.name, entry.start, message)) == "keep" and good
        if name == entry.name:
            before.add(name)
    twice = len({name for _, name in chosen}) < len(chosen)
    if twice and any(duplicate_entries([entry._replace(name=name) for entry, name in chosen], set())):
        message = f"two fields of {show(key)} get the same name"
        good = policy.apply(Problem("duplicate-entry", source.name, sample.start, message)) == "keep" and good
    if not good:
        return None
    if [entry for entry, _ in chosen] == sample.entries and all(entry.name == name for entry, name in chosen):
        return sample
    assembled = _assembled(sample, key, chosen)
    assembled.row = sample.row
    assembled.plain = sample.plain and not twice
    return assembled


def _assembled(sample: TarSample, key: bytes, chosen: list[tuple[Entry, bytes]]) -> TarSample:
    source, assembly, room = sample.source, Assembly(sample.source, sample.start), SMALL
    for entry, name in chosen:
        if name == entry.name:
            assembly.keep(source, entry)
        elif entry.stop - entry.start <= room:  # one read for header and payload
            room -= entry.stop - entry.start
            data, cut = source.read(entry.start, entry.stop), entry.data - entry.start
            assembly.add(entry, name, _renamed(source, entry, data[:cut], name), data[cut:], origin=source)
        else:
            header = _renamed(source, entry, source.read(entry.start, entry.data), name)
            assembly.add(entry, name, header, (source, entry.data, entry.stop), origin=source)
    return assembly.sample(key)


def _renamed(source: Source, entry: Entry, header: bytes, name: bytes) -> bytes:
    """Return the header of an entry with another name; raise Problem for a NUL in it, which no header is made with."""
    if 0 in name:
        message = f"the name {show(entry.name)} contains a NUL, so the entry cannot be renamed"
        hint = f"{spell_open('skip', 'unsafe-name')} leaves such samples out"
        raise Problem("unsafe-name", source.name, entry.start, message, hint)
    return rename(header, name)


def stem(name: str) -> str:
    """Return a shard's name without directories and archive suffixes."""
    base = os.path.basename(name)
    lower = base.lower()
    if not lower.endswith(_ENDINGS):
        return base
    ending = next(suffix for suffix in _SUFFIXES if lower.endswith(suffix))
    return base[: len(base) - len(ending)] or base


def directory_of(name: str) -> list[str]:
    """Return the components of the directory of a path or URL; none for stdin and commands."""
    if name.startswith(("pipe:", "<")) or name == "-":
        return []
    if "://" in name:
        return name.partition("?")[0].split("/")[:-1]
    return os.path.dirname(os.path.abspath(name)).split("/")


def common_directory(names: Iterable[str]) -> tuple[str, ...]:
    """Return the components that the directories of all these archives begin with."""
    common: list[str] | None = None
    for name in names:
        parts = directory_of(name)
        common = parts if common is None else common
        same = next((at for at, (a, b) in enumerate(zip(common, parts, strict=False)) if a != b), len(parts))
        common = common[:same]
    return tuple(common or ())


def _rekeyer(spec: str, base: tuple[str, ...]) -> Callable[[bytes, int, str], bytes]:
    """Return a function of key, index and shard name that makes the new key; `#` is nine digits."""
    template = spec.replace("#", "{index:09d}").replace("{dir}/", "{dir}")
    slash = "/" if "{dir}/" in spec else ""
    try:
        template.format(key="k", index=0, shard="s.tar", stem="s", dir="d")
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise Usage(
            f"{spell('rekey')} {show(spec)}: {error!s}",
            "it may hold {key}, {index:06d}, {shard}, {stem}, {dir}, or # for nine digits",
        ) from None

    @lru_cache(64)
    def words_of(shard: str) -> dict[str, str]:
        parts = directory_of(shard)
        below = "/".join(filter(None, parts[len(base) :] if tuple(parts[: len(base)]) == base else parts))
        return {"shard": os.path.basename(shard), "stem": stem(shard), "dir": below + slash * bool(below)}

    def rekey(key: bytes, index: int, shard: str) -> bytes:
        new = os.fsencode(template.format(key=os.fsdecode(key), index=index, **words_of(shard)))
        if b"\0" in new or split_name(new + b".x") != (new, b"x"):
            raise TarkitError(
                f"{spell('rekey')} {show(spec)} makes {show(new)} of {show(key)}, which is not a key",
                "a key is not empty and has no dot after its last slash",
            )
        return new

    return rekey
