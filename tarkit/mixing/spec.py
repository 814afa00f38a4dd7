"""The sources of a mix: words such as `'A-{000..099}.tar@1.45' B.tar@1`, or a file in YAML or JSON.

That file has one of two forms. tarmix's:

    shuffle: 1000                       # of the mixed samples, through a buffer
    sources:
      - shards: "A-{000..099}.tar"      # a word of the command line, or a list of them
        weight: 1.45                    # drawn in proportion to it; default 1
        probability: 0.5                # a sample that was drawn is kept with this probability; default 1
        nstreams: 4                     # number of shards read in turn; default 1
        nrepeats: 2                     # number of passes; default 1
        shuffle: 500                    # shards in random order, samples through a buffer of this size
        allow_missing: true             # files that are missing are left out
        rename: {page.jpg: jpg, xml: ""}    # fields; also a list of {from: OLD, to: NEW}; "" deletes
        rekey: "A/{key}"                # not in tarmix: as the option --rekey, for this source
        name: A                         # not in tarmix: for messages and reports

and webdataset's `datasets` (also `dataset`): `prefix`, `buckets`, and for each data set `shards`, `name`, `buckets`,
`choose: N` shards without replacement or `resample: N` with it. There all shards are read in random order, and the
weight of a data set is by default the number of its shards that are read. This equals webdataset's way, which shuffles
the shards of all together. `~` and `$VARIABLE` are expanded there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarkit.errors import MissingLibrary, TarkitError, Usage, show, unreadable
from tarkit.stores.store import StoreOptions
from tarkit.streams.text import file_label, open_file, unique_keys

# ---- Files in YAML or JSON: read them, and report the position of errors

MOST = 1e100  # maximum of a weight, so that sums are finite
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def load(path: str, options: StoreOptions | None = None) -> Any:
    """Return the data in a file: JSON if its name ends in .json, else YAML (plain data only).

    Raises TarkitError with the line: it cannot be read, or a mapping has a key twice; and when PyYAML is missing.
    """
    word, path = path, file_label(path)
    try:
        with open_file(word, options) as file:
            text = file.read().decode("utf-8-sig")
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise TarkitError(f"{path}: at {error.start}: not UTF-8") from None
    if path.lower().endswith(".json"):
        try:
            return json.loads(text, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            raise TarkitError(f"{path}: invalid JSON: {error}") from None
    try:
        import yaml
    except ImportError:
        otherwise = ", or write JSON, in a file that ends in .json"
        raise MissingLibrary(f"{path}: reading YAML", "PyYAML", "yaml", otherwise) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc,unused-ignore]
        """Refuses a mapping with a duplicate key, of which the library would take the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and keys.count(key.value) > 1:
                    what = f"{show(key.value)} occurs twice"
                    raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        what = getattr(error, "problem", None) or " ".join(str(error).split())
        raise TarkitError(f"{where}: invalid YAML: {what}") from None


@dataclass
class SpecNode:
    """A position in a file, or among arguments; its methods read the values of the mapping there and raise `error`."""

    path: str
    where: list[str] = field(default_factory=list)
    error: type[TarkitError] = TarkitError

    def of(self, part: str) -> SpecNode:
        """Return the position of a part."""
        return SpecNode(self.path, [*self.where, part])

    def wrong(self, what: str, hint: str | None = None) -> TarkitError:
        """Return an error with this position."""
        return self.error(": ".join([self.path, *self.where, what]), hint)

    def mapping(self, found: Any) -> None:
        """Raise unless a source is a mapping."""
        if not isinstance(found, dict):
            raise self.wrong("not a mapping with `shards`")

    def known(self, found: dict[str, Any], keys: Sequence[str], warn: Callable[[str], None] | None = None) -> None:
        """Raise, or warn, for other keys."""
        for key in found:
            if key in keys:
                continue
            from difflib import get_close_matches

            close = get_close_matches(str(key), keys, 1, 0.75)
            what = f"unknown key {show(str(key))}" + (f"; did you mean {show(close[0])}?" if close else "")
            if warn is None:
                raise self.wrong(what, "proc converts" if key == "convert" else f"known keys: {', '.join(keys)}")
            warn(str(self.wrong(what)))

    def listed(self, found: dict[str, Any], key: str) -> list[Any]:
        """Return a list that is not empty."""
        values = found[key]
        if not isinstance(values, list) or not values:
            raise self.wrong(f"`{key}` is a list of at least one")
        return values

    def words(self, found: dict[str, Any], key: str, default: list[str] | None = None) -> list[str]:
        """Return a list of names, of which there may be one without a list."""
        value = found.get(key, default)
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not values or not all(isinstance(each, str) for each in values):
            raise self.wrong(f"`{key}` is a name, or a list of names")
        return values

    def text(self, found: dict[str, Any], key: str, default: Any) -> Any:
        """Return a string that is not empty, or the default."""
        value = found.get(key, default)
        if value is not default and not (isinstance(value, str) and value):
            raise self.wrong(f"`{key}` is text")
        return value

    def number(self, found: dict[str, Any], key: str) -> float:
        """Return a number > 0, also one like 1e3, which is a string in YAML."""
        value = found[key]
        if isinstance(value, str) and NUMBER.fullmatch(value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(f"`{key}` is a number")
        if not 0 < value <= MOST:
            raise self.wrong(f"`{key}` is more than 0", "leave the source out to draw nothing from it")
        return float(value)

    def count(self, found: dict[str, Any], key: str, default: int, least: int = 1) -> int:
        """Return an integer."""
        value = found.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(f"`{key}` is a whole number from {least} on")
        return value

    def renames(self, found: dict[str, Any]) -> tuple[tuple[bytes, bytes], ...]:
        """Return pairs of fields, old and new, of a mapping or of a list of {from: OLD, to: NEW}."""
        value = found.get("rename", {})
        if isinstance(value, list):
            if not all(isinstance(each, dict) and each.keys() == {"from", "to"} for each in value):
                raise self.wrong("`rename` is a mapping OLD: NEW, or a list of {from: OLD, to: NEW}")
            pairs = [(each["from"], each["to"]) for each in value]
        elif isinstance(value, dict):
            pairs = list(value.items())
        else:
            raise self.wrong("`rename` is a mapping OLD: NEW, or a list of {from: OLD, to: NEW}")
        for old, new in pairs:
            if not isinstance(old, str) or not isinstance(new, str) or not old or "/" in old + new or "\0" in new:
                raise self.wrong("`rename`: the name of a field is text without a slash")
        if len({old.lower() for old, _ in pairs}) < len(pairs):
            raise self.wrong("`rename`: one field gets two names")
        return tuple((os.fsencode(old), os.fsencode(new)) for old, new in pairs)


SUFFIXES = (".yaml", ".yml", ".json")
SOURCE_KEYS = (
    *("shards", "weight", "probability", "nstreams", "nrepeats", "shuffle", "allow_missing", "rename", "rekey"),
    "name",
)
DATASET_KEYS = (*SOURCE_KEYS, "buckets", "choose", "resample")


@dataclass
class SourceSpec:
    """One source of a mix, as specified.

    `words` name its inputs. A `weight` of None is the number of shards that are read. `rename` has pairs of fields, old
    and new. With `any_order` its shards are read in random order.
    """

    name: str
    words: list[str]
    weight: float | None = 1.0
    probability: float = 1.0
    nstreams: int = 1
    nrepeats: int = 1
    shuffle: int = 0
    allow_missing: bool = False
    rename: tuple[tuple[bytes, bytes], ...] = ()
    rekey: str | None = None
    choose: int = 0
    resample: int = 0
    any_order: bool = False


@dataclass
class MixSpec:
    """All sources; `shuffle` is the size of a shuffle buffer for the mix, `path` the file with the specification."""

    sources: list[SourceSpec]
    shuffle: int = 0
    path: str | None = None


def parse_mix(
    words: Sequence[str], warn: Callable[[str], None] = lambda line: None, options: StoreOptions | None = None
) -> MixSpec:
    """Return the mix that words of a command line specify: `SPEC.yaml` (or .yml, .json), or sources with weights.

    `options` say how the URL of a file is reached.

    Raises Usage, and TarkitError for a file that cannot be read or is invalid.
    """
    if not words:
        raise Usage("nothing to mix", "name the sources: tarkit mix 'A-{000..099}.tar@1.45' B.tar@1 -o OUT")
    sources = [parse_source(word) for word in words]
    specs = [source.name for source in sources if source.name.lower().endswith(SUFFIXES)]
    if specs and specs != list(words):
        raise Usage(f"{show(specs[0])} describes a whole mix: it has no weight, and no other sources beside it")
    if len(specs) > 1:
        raise Usage(f"{show(specs[0])} describes a whole mix: only one can be given")
    return read_spec(specs[0], warn, options) if specs else MixSpec(sources)


def parse_source(word: str) -> SourceSpec:
    """Parse `NAME@WEIGHT`: the weight is the number after the last `@`; without one it is 1.

    The name of an existing file that contains `@` has the weight 1. Raises Usage for an invalid weight.
    """
    name, at, weight = word.rpartition("@")
    if not at or not NUMBER.fullmatch(weight) or os.path.lexists(word):
        return SourceSpec(word, [word])
    if not name:
        raise Usage(f"{show(word)}: a weight without a source")
    if not 0 < float(weight) <= MOST:
        raise Usage(f"{show(word)}: a weight is more than 0", "leave the source out to draw nothing from it")
    return SourceSpec(name, [name], float(weight))


def read_spec(
    path: str, warn: Callable[[str], None] = lambda line: None, options: StoreOptions | None = None
) -> MixSpec:
    """Return the mix that a file specifies. `warn` is called for unknown keys in webdataset's form.

    Raises TarkitError, with the position in the file.
    """
    found, name = load(path, options), file_label(path)
    if not isinstance(found, dict):
        raise TarkitError(f"{name}: not a mix, which is a mapping with a list of `sources`")
    here = SpecNode(name)
    if "sources" in found:
        here.known(found, ("sources", "shuffle"))
        sources = [_source(here.of(f"sources[{n}]"), each) for n, each in enumerate(here.listed(found, "sources"))]
        return MixSpec(sources, here.count(found, "shuffle", 0, least=0), path)
    word = "datasets" if "datasets" in found else "dataset"
    if word not in found:
        raise TarkitError(f"{name}: neither `sources` nor `datasets` in it", "a mix is a list of sources with weights")
    here.known(found, (word, "prefix", "buckets"), warn)
    sources = [_dataset(here.of(f"{word}[{n}]"), each, found, warn) for n, each in enumerate(here.listed(found, word))]
    return MixSpec(sources, 0, path)


def parse_mapping(where: str, found: dict[str, Any]) -> SourceSpec:
    """Return the source that a mapping in Python specifies. Raises Usage, with `where` in front."""
    here = SpecNode(where, error=Usage)
    here.known(found, (*SOURCE_KEYS, "choose", "resample"))
    return _common(here, found, here.words(found, "shards"), 1.0)


def _source(here: SpecNode, found: Any) -> SourceSpec:
    here.mapping(found)
    here.known(found, SOURCE_KEYS)
    return _common(here, found, here.words(found, "shards"), 1.0)


def _dataset(here: SpecNode, found: Any, top: dict[str, Any], warn: Callable[[str], None]) -> SourceSpec:
    here.mapping(found)
    here.known(found, DATASET_KEYS, warn)
    buckets = here.words(found if "buckets" in found else top, "buckets", [""])
    if len(buckets) > 1:
        raise here.wrong("more than one of `buckets`")
    prefix = here.text(top, "prefix", "")
    words = here.words(found, "shards")
    shards = [_expanded(prefix) + os.path.join(_expanded(buckets[0]), _expanded(word)) for word in words]
    spec = _common(here, found, shards, None)
    if "name" not in found:
        spec.name = f"@{buckets[0]}" if buckets[0] and "buckets" in found else spec.name
    spec.any_order = True
    return spec


def _common(here: SpecNode, found: dict[str, Any], words: list[str], weight: float | None) -> SourceSpec:
    more = f" and {len(words) - 1} more" if len(words) > 1 else ""
    spec = SourceSpec(here.text(found, "name", words[0] + more), words, weight)
    if "weight" in found:
        spec.weight = here.number(found, "weight")
    if "probability" in found:
        spec.probability = here.number(found, "probability")
        if spec.probability > 1:
            raise here.wrong("a `probability` is at most 1")
    spec.nstreams = here.count(found, "nstreams", 1)
    spec.nrepeats = here.count(found, "nrepeats", 1)
    spec.shuffle = here.count(found, "shuffle", 0, least=0)
    spec.any_order = spec.shuffle > 0
    spec.choose = here.count(found, "choose", 0, least=0)
    spec.resample = here.count(found, "resample", 0, least=0)
    if spec.choose and spec.resample:
        raise here.wrong("`choose` takes shards without replacement, `resample` with it: not both")
    spec.allow_missing = found.get("allow_missing", False)
    if not isinstance(spec.allow_missing, bool):
        raise here.wrong("`allow_missing` is true or false")
    spec.rename = here.renames(found)
    spec.rekey = here.text(found, "rekey", None)
    return spec


def _expanded(word: str) -> str:
    return os.path.expanduser(os.path.expandvars(word))
