"""Transform the samples of a tree before they are packed: category, required fields, new names, added fields."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, Literal

from tarkit.errors import TarkitError, Usage, show, spell
from tarkit.packing.grouping import KeyRule, cut_first, has_key, is_sample
from tarkit.packing.planned import PlannedFile, PlannedSample
from tarkit.packing.tree import CountedNames
from tarkit.spill.multimap import Multimap

if TYPE_CHECKING:
    from tarkit.packing.labels import Classes, FieldsOfTable
    from tarkit.shards.categories import Map

# ---- Fields that samples must have, and no others (--require), as in ishard (docs/formats)

OnMissing = Literal["error", "warn", "keep", "exclude"]

SHOWN = 20  # maximum of warnings, as each file may have one


@dataclass
class Required:
    """The required fields, each a choice of names in lower case, and the action for other fields or missing ones.

    error: raise. warn: warn, and keep all. keep: keep all. exclude: leave out files of other fields, and samples
    without a required one. A second file of a field is not an error. With `last_dot` a field need not begin at the
    first dot of a name. `lacking` and `others` count samples and files.
    """

    names: Sequence[tuple[bytes, ...]]
    action: OnMissing
    last_dot: bool
    warn: Callable[[str], None] = lambda text: None
    lacking: int = 0
    others: int = 0
    _shown: int = field(default=0, repr=False)

    def __call__(self, key: bytes, files: list[PlannedFile], added: Sequence[bytes]) -> list[PlannedFile] | None:
        """Return the files that stay, None to leave the sample out; `added` are names of fields. Raises TarkitError."""
        required = [name for names in self.names for name in names]
        present = {name.lower() for name in added}
        kept = []
        for file in files:
            here = [name for name in required if self._has(file[0], name)]
            present.update(here)
            if here:
                kept.append(file)
            elif self.action != "keep":
                self.others += 1
                self._tell(f"sample {show(key)} has {show(file[0])}, a field that {spell('require')} does not name")
        missing = [names for names in self.names if present.isdisjoint(names)]
        if missing and self.action != "keep":
            self.lacking += 1
            words = " and no ".join(b"|".join(names).decode("utf-8", "backslashreplace") for names in missing)
            self._tell(f"sample {show(key)} has no {words}")
        if self.action != "exclude":
            return files
        return None if missing else kept

    def _has(self, name: bytes, field_: bytes) -> bool:
        base = name[name.rfind(b"/") + 1 :].lower()
        if self.last_dot:
            return base.endswith(b"." + field_)
        return base.partition(b".")[2] == field_

    def _tell(self, message: str) -> None:
        if self.action == "error":
            hint = f"{spell('on_missing', 'exclude')} leaves such samples out, warn and keep pack them"
            raise TarkitError(f"{message} [missing-field]", hint)
        if self.action == "warn":
            self._shown += 1
            if self._shown <= SHOWN:
                self.warn(message)
            elif self._shown == SHOWN + 1:
                self.warn("more such samples are counted, but not named")


def parse_required(words: Sequence[str]) -> list[tuple[bytes, ...]]:
    """Return the fields of `jpg,json` or `.jpg|.png json`, with or without leading dots. Raises Usage for an empty
    name."""
    required = []
    for word in words:
        for part in (part for chunk in word.split(",") for part in chunk.split() or [""]):
            names = tuple(name.removeprefix(".").encode("utf-8", "surrogateescape").lower() for name in part.split("|"))
            if not all(names):
                option = spell("require")
                raise Usage(f"{option} {show(word)}: an empty name of a field", f"for example {option} jpg,json")
            if names not in required:
                required.append(names)
    return required


Rename = Literal["none", "key", "flat"]


@dataclass
class SampleTransform:
    """The transformation of samples; iterate over `apply(samples)`, then call `close()`.

    `source` returns the source of a file. `packed` has the entries of existing shards, with their sizes: samples whose
    files are all in it are left out (--update).

    Files whose new names have no key are no samples: nothing is required of them or added, and those in no category
    are left out and counted in `keyless_out`.

    Afterwards `unmatched` samples were in no category, `packed_samples` in shards already, `changed` files have another
    size there; `parted` samples are several to readers of shards, and `shared` keys of readers are those of several
    samples.
    """

    rule: KeyRule
    source: Callable[[bytes], bytes]
    rename: Rename = "none"
    map: Map | None = None
    required: Required | None = None
    join: FieldsOfTable | None = None
    classes: Classes | None = None
    packed: dict[bytes, int] | None = None
    tmpdir: str | None = None
    unmatched: CountedNames = field(default_factory=CountedNames)
    packed_samples: int = 0
    changed: CountedNames = field(default_factory=CountedNames)
    parted: CountedNames = field(default_factory=CountedNames)
    shared: CountedNames = field(default_factory=CountedNames)
    keyless_out: CountedNames = field(default_factory=CountedNames)
    _names: Multimap | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        adds = self.join is not None or self.classes is not None
        merges = self.rename == "flat" or (self.rename == "key" and self.rule.may_have_dots)
        if merges or (adds and self.rule.kind != "full" and self.rename == "none"):
            self._names = Multimap(self.tmpdir)
        self._looks = merges or (self.rename == "none" and not self.rule.as_readers)
        self._readers: Multimap | None = None
        if self._looks and (self.rule.may_have_dots or merges):
            self._readers = Multimap(self.tmpdir)
        asked = any(part is not None for part in (self.map, self.required, self.packed))
        self.needed = adds or asked or self._looks or self.rename != "none"

    @property
    def gathers(self) -> str:
        """The hint for a sample that readers would find twice in a shard."""
        ways = [f"give up {spell('last_dot')}"] if self.rule.last_dot else []
        more = f"name entries after their sample with {spell('rename', 'key')}"
        ways.append("rename the files" if self.rename == "key" else more)
        return f"readers end keys at the first dot: {', or '.join(ways)}"

    def apply(self, samples: Iterable[PlannedSample]) -> Iterator[PlannedSample]:
        """Yield the transformed samples that stay; all as they are when it is not `needed`. Raises TarkitError."""
        for key, files, category in samples:
            new = self._renamed(key, files)
            keyless = not is_sample(new)
            if self.map is not None:
                mapped = self.map.category([name for name, _, _ in files], key)
                if mapped is None:
                    if keyless:
                        self.keyless_out.add(files[0][0], len(files))
                    else:
                        self.unmatched.add(key)
                    continue
                category = mapped.place
            if keyless:
                if (keyless_group := self._keyless(key, files, new, category)) is not None:
                    yield keyless_group
                continue
            added = [] if self.join is None else self.join.fields(key, files)
            if self.required is not None:
                kept = self.required(key, files, [name for name, _, _ in added])
                if not kept:
                    continue
                if len(kept) < len(files):
                    files, new = kept, self._renamed(key, kept)
            old, files = files, new
            if self.packed is not None and self._in_shards(key, files, self.packed):
                continue
            if self.classes is not None or added:
                files = self._with_more(old, files, added)
            self._check(key, old, files)
            yield key, files, category

    def _keyless(
        self, key: bytes, old: list[PlannedFile], files: list[PlannedFile], category: int
    ) -> PlannedSample | None:
        """Return files without a key, which are no sample: there is nothing to add or to require. None for none."""
        if self.required is not None and self.required.action == "exclude":
            self.required.others += len(old)
            return None
        if self.packed is not None:
            pairs = [pair for pair in zip(old, files, strict=True) if pair[1][0] not in self.packed]
            old, files = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if not files:
            return None
        self._check(key, old, files)
        return key, files, category

    def close(self) -> None:
        """Check after the last sample. Raises TarkitError when two entries would have one name, or no sample a row."""
        if self.join is not None:
            self.join.close()
        if self.classes is not None:
            self.classes.check()
        for reader, _ in self._readers.repeated() if self._readers is not None else ():
            self.shared.add(reader)
            self.shared.first = min(self.shared.first, reader)
        if self._names is not None:
            for name, olds in self._names.repeated():
                hint = f"{spell('rename', 'key')} and {spell('rename', 'none')} keep samples apart"
                raise TarkitError(
                    f"{show(olds[0])} and {show(olds[1])} would both be named {show(name)} [duplicate-entry]",
                    "rename one of the files" if self.rename == "key" else hint,
                )

    def _renamed(self, key: bytes, files: list[PlannedFile]) -> list[PlannedFile]:
        if self.rename == "none":
            return files
        return [(self._new_name(key, name), size, source or self.source(name)) for name, size, source in files]

    def _new_name(self, key: bytes, name: bytes) -> bytes:
        if self.rename == "flat":
            return name.replace(b"/", b"_")
        cut, stem = len(self.rule.cut(name)[0]), key[key.rfind(b"/") + 1 :]
        if b"." in stem:  # readers of shards would end the key there
            start = name.rfind(b"/") + 1
            if name.startswith(stem + b".", start):
                cut = start + len(stem)
            key = key.removesuffix(stem) + stem.replace(b".", b"_")
        return key + name[cut:]

    def _in_shards(self, key: bytes, files: list[PlannedFile], packed: dict[bytes, int]) -> bool:
        there = [name in packed for name, _, _ in files]
        if not any(there):
            return False
        if not all(there):
            new = files[there.index(False)][0]
            raise TarkitError(
                f"sample {show(key)} is in the shards, but without {show(new)}: {spell('update')} packs whole samples",
                f"pack all again with {spell('force')}",
            )
        self.packed_samples += 1
        for name, size, _ in files:
            if packed[name] != size:
                self.changed.add(name)
        return True

    def _with_more(
        self, old: list[PlannedFile], files: list[PlannedFile], added: list[PlannedFile]
    ) -> list[PlannedFile]:
        key = cut_first(next(name for name, _, _ in files if has_key(name)))[0]
        more = [(key + b"." + name, size, source) for name, size, source in added]
        if self.classes is not None:
            more += self.classes.labels(key, self.classes.of(old))
        return files + more

    def _check(self, key: bytes, old: list[PlannedFile], files: list[PlannedFile]) -> None:
        if self._looks and (len(files) > 1 or self._readers is not None):
            readers = {cut_first(name)[0] for name, _, _ in files if has_key(name)}
            if self._readers is not None:
                for reader in sorted(readers):
                    self._readers.add(reader, b"")
            if len(readers) > 1:
                self.parted.add(key)
        if self._names is not None:
            for place, (name, _, _) in enumerate(files):
                self._names.add(name, old[place][0] if place < len(old) else b"a field that is added")
        elif len(files) > 1 and (self.rename == "key" or len(files) > len(old)):
            seen: dict[bytes, int] = {}
            for place, (name, _, _) in enumerate(files):
                other = seen.setdefault(name, place)
                if other != place:
                    one, two = (
                        show(old[index][0]) if index < len(old) else "a field that is added" for index in (other, place)
                    )
                    hint = f"another {spell('key')} keeps them apart"
                    if place >= len(old):
                        glob = quote(os.fsdecode(b"*." + cut_first(name)[1]))
                        out = f"{spell('exclude')} {glob}"
                        hint = f"give the field that is added another name, or leave the files out: {out}"
                    raise TarkitError(f"{one} and {two} would both be named {show(name)} [duplicate-entry]", hint)
