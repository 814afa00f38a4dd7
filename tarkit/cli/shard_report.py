"""Messages of `shard` about a plan: what was left out, and what readers of the shards may not expect."""

from __future__ import annotations

from tarkit.cli.category_options import MapOptions
from tarkit.cli.console import ConsoleRun
from tarkit.errors import show
from tarkit.packing.layout import PackLayout
from tarkit.packing.samples import Keyless
from tarkit.packing.transform import SampleTransform
from tarkit.packing.tree import Tree


def report(
    run: ConsoleRun, tree: Tree, dress: SampleTransform, layout: PackLayout, map_: MapOptions, keyless: Keyless
) -> None:
    """Print what was left out, and where readers of the shards see other samples than tarkit."""
    for what, count in sorted(tree.skipped.items()):
        run.tell(f"left out, {what}: {count}")
    rule, required, join = dress.rule, dress.required, dress.join
    if rule.unmatched:
        run.warn(f"--key: names without a match, which are their own keys: {rule.unmatched} of {tree.files}")
    if map_.spec is not None:
        run.facts["unmatched"] = dress.unmatched
    if dress.unmatched and map_.on_unmatched == "warn":
        first = show(dress.unmatched_first)
        run.warn(f"samples in no category, left out: {dress.unmatched}, {first} first; --unmatched packs them")
    if required is not None and required.lacking + required.others:
        run.warn(f"--require: samples that lack a field: {required.lacking}; files of other fields: {required.others}")
    if join is not None:
        rows = f"samples with a row: {join.found}, without: {join.lacking}; rows without a sample: {join.unused}"
        run.tell(f"{join.name}: {rows}")
        if join.lacking and not join.found:
            what = f"column {show(join.column)} begins with {show(join.example)}, keys with {show(join.first)}"
            more = "" if rule.kind == "base" else "; --key base takes names without their directories"
            run.warn(f"{join.name}: no sample has a row: {what}{more}")
    if dress.known is not None:
        none = "" if dress.known else "; there are no shards of this name"
        run.tell(f"--update: samples that are in shards already: {dress.known_samples}{none}")
        if dress.known and not dress.known_samples:
            run.warn("--update: no file of the tree is in the shards; were they made with another --rename or DIR?")
    if dress.changed:
        first = show(dress.changed_first)
        run.warn(f"--update: files with another size than in the shards, which stay: {dress.changed}, {first} first")
    if dress.parted:
        first = show(dress.parted_first)
        what = "samples that readers would split, since the paths of their entries differ"
        run.warn(f"{what}: {dress.parted}, {first} first; --rename key prevents it")
    if dress.shared:
        first = show(dress.shared_first)
        run.warn(f"duplicate keys to readers, perhaps in several shards: {dress.shared}, {first} first")
    if keyless.count:
        first = show(keyless.first)
        run.warn(f"names without a key (no dot, or a leading one): {keyless.count}, {first} first")
    run.facts["files"] = tree.files
    content = f" of {tree.content} bytes" if tree.sized else ""
    run.note(f"{tree.files} files{content}, {layout.samples} samples, {len(layout)} shards")
