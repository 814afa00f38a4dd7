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
from functools import partial
from typing import Any

from tarkit.errors import TarkitError, Usage, load_library, show, unreadable
from tarkit.sizes import and_more
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
    otherwise = ", or write JSON, in a file that ends in .json"
    yaml = load_library("yaml", f"{path}: reading YAML", "PyYAML", "yaml", otherwise)
    try:
        return yaml.load(text, _loader(yaml))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        words = getattr(error, "problem", None) or " ".join(str(error).split())
        raise TarkitError(f"{where}: invalid YAML: {words}") from None


def _loader(yaml: Any) -> Any:
    """Return a loader of plain data that refuses a mapping with a key twice, of which the library takes the last."""

    def construct_mapping(self: Any, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and keys.count(key.value) > 1:
                message = f"{show(key.value)} occurs twice"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
        return yaml.SafeLoader.construct_mapping(self, node, deep)

    return type("Loader", (yaml.SafeLoader,), {"construct_mapping": construct_mapping})


# ---- The values of a mapping: for each key a test of its value, and words for values that pass


def _is_count(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any) -> bool:  # also 1e3, which is a string in YAML
    if isinstance(value, str):
        return NUMBER.fullmatch(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_names(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and bool(value) and all(map(_is_str, value)))


def _is_renames(value: Any) -> bool:
    pairs = value if isinstance(value, list) else []
    good = all(isinstance(pair, dict) and pair.keys() == {"from", "to"} for pair in pairs)
    return good and isinstance(value, dict | list)


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


_TEXT = (lambda value: bool(value) and isinstance(value, str), "is text")
_MAPPINGS = (lambda value: bool(value) and isinstance(value, list), "is a list of at least one")
_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("sources", "datasets", "dataset"), _MAPPINGS),
    **dict.fromkeys(("shards", "buckets"), (_is_names, "is a name, or a list of names")),
    **dict.fromkeys(("weight", "probability"), (_is_number, "is a number")),
    **dict.fromkeys(("nstreams", "nrepeats"), (partial(_is_count, least=1), "is a whole number from 1 on")),
    **dict.fromkeys(("shuffle", "choose", "resample"), (_is_count, "is a whole number from 0 on")),
    "allow_missing": (lambda value: isinstance(value, bool), "is true or false"),
    "rename": (_is_renames, "is a mapping OLD: NEW, or a list of {from: OLD, to: NEW}"),
    "name": _TEXT,
    "rekey": (lambda value: value is None or _TEXT[0](value), "is text"),
    "prefix": (_is_str, "is text"),
}


@dataclass
class SpecNode:
    """A position in a file, or among arguments; errors there are of the class `kind`."""

    path: str
    where: list[str] = field(default_factory=list)
    kind: type[TarkitError] = TarkitError

    def of(self, part: str) -> SpecNode:
        """Return the position of a part."""
        return SpecNode(self.path, [*self.where, part])

    def error(self, message: str, hint: str | None = None) -> TarkitError:
        """Return an error with this position."""
        return self.kind(": ".join([self.path, *self.where, message]), hint)

    def read(self, mapping: dict[str, Any], key: str, default: Any = None) -> Any:
        """Return the value of a key; raise the error that it has another."""
        value = mapping.get(key, default)
        passes, words = _VALUES[key]
        if not passes(value):
            raise self.error(f"`{key}` {words}")
        return [value] if key in ("shards", "buckets") and isinstance(value, str) else value

    def number(self, mapping: dict[str, Any], key: str) -> float:
        """Return a number > 0."""
        value = self.read(mapping, key)
        value = float(value) if isinstance(value, str) else value
        if not 0 < value <= MOST:
            raise self.error(f"`{key}` is more than 0", "leave the source out to draw nothing from it")
        return float(value)

    def renames(self, mapping: dict[str, Any]) -> tuple[tuple[bytes, bytes], ...]:
        """Return pairs of fields, old and new, of a mapping or of a list of {from: OLD, to: NEW}."""
        value = self.read(mapping, "rename", {})
        pairs = list(value.items()) if isinstance(value, dict) else [(pair["from"], pair["to"]) for pair in value]
        for old, new in pairs:
            if not isinstance(old, str) or not isinstance(new, str) or not old or "/" in old + new or "\0" in new:
                raise self.error("`rename`: the name of a field is text without a slash")
        if len({old.lower() for old, _ in pairs}) < len(pairs):
            raise self.error("`rename`: one field gets two names")
        return tuple((os.fsencode(old), os.fsencode(new)) for old, new in pairs)

    def check_keys(
        self, mapping: dict[str, Any], keys: Sequence[str], warn: Callable[[str], None] | None = None
    ) -> None:
        """Raise, or warn, for other keys, and for a value that is not a mapping."""
        if not isinstance(mapping, dict):
            raise self.error("not a mapping with `shards`")
        for key in mapping:
            if key in keys:
                continue
            from difflib import get_close_matches

            close = get_close_matches(str(key), keys, 1, 0.75)
            message = f"unknown key {show(str(key))}" + (f"; did you mean {show(close[0])}?" if close else "")
            if warn is None:
                raise self.error(message, "proc converts" if key == "convert" else f"known keys: {', '.join(keys)}")
            warn(str(self.error(message)))


SUFFIXES = (".yaml", ".yml", ".json")
SOURCE_KEYS = (
    *("shards", "weight", "probability", "nstreams", "nrepeats", "shuffle", "allow_missing", "rename", "rekey"),
    "name",
)


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
    document, name = load(path, options), file_label(path)
    if not isinstance(document, dict):
        raise TarkitError(f"{name}: not a mix, which is a mapping with a list of `sources`")
    node = SpecNode(name)
    if "sources" in document:
        node.check_keys(document, ("sources", "shuffle"))
        rows = enumerate(node.read(document, "sources"))
        sources = [_source(node.of(f"sources[{number}]"), row, SOURCE_KEYS) for number, row in rows]
        return MixSpec(sources, node.read(document, "shuffle", 0), path)
    word = "datasets" if "datasets" in document else "dataset"
    if word not in document:
        raise TarkitError(f"{name}: neither `sources` nor `datasets` in it", "a mix is a list of sources with weights")
    node.check_keys(document, (word, "prefix", "buckets"), warn)
    rows = enumerate(node.read(document, word))
    return MixSpec([_dataset(node.of(f"{word}[{number}]"), row, document, warn) for number, row in rows], 0, path)


def parse_mapping(where: str, mapping: dict[str, Any]) -> SourceSpec:
    """Return the source that a mapping in Python specifies. Raises Usage, with `where` in front."""
    return _source(SpecNode(where, kind=Usage), mapping, (*SOURCE_KEYS, "choose", "resample"))


def _source(node: SpecNode, mapping: Any, keys: Sequence[str]) -> SourceSpec:
    node.check_keys(mapping, keys)
    return _common(node, mapping, node.read(mapping, "shards"), 1.0)


def _dataset(node: SpecNode, mapping: Any, top: dict[str, Any], warn: Callable[[str], None]) -> SourceSpec:
    node.check_keys(mapping, (*SOURCE_KEYS, "buckets", "choose", "resample"), warn)
    buckets = node.read(mapping if "buckets" in mapping else top, "buckets", [""])
    if len(buckets) > 1:
        raise node.error("more than one of `buckets`")
    prefix = node.read(top, "prefix", "")
    words = node.read(mapping, "shards")
    shards = [_expanded(prefix) + os.path.join(_expanded(buckets[0]), _expanded(word)) for word in words]
    spec = _common(node, mapping, shards, None)
    if "name" not in mapping:
        spec.name = f"@{buckets[0]}" if buckets[0] and "buckets" in mapping else spec.name
    spec.any_order = True
    return spec


def _common(node: SpecNode, mapping: dict[str, Any], words: list[str], weight: float | None) -> SourceSpec:
    spec = SourceSpec(node.read(mapping, "name", and_more(words)), words, weight)
    for key in ("weight", "probability"):
        if key in mapping:
            setattr(spec, key, node.number(mapping, key))
    if spec.probability > 1:
        raise node.error("a `probability` is at most 1")
    for key in ("nstreams", "nrepeats", "shuffle", "choose", "resample", "allow_missing", "rekey"):
        setattr(spec, key, node.read(mapping, key, getattr(spec, key)))
    if spec.choose and spec.resample:
        raise node.error("`choose` takes shards without replacement, `resample` with it: not both")
    spec.rename = node.renames(mapping)
    spec.any_order = spec.shuffle > 0
    return spec


def _expanded(word: str) -> str:
    return os.path.expanduser(os.path.expandvars(word))
