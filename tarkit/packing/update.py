"""The entries of existing shards, for `shard --update`."""

from __future__ import annotations

from collections.abc import Sequence

from tarkit.errors import Problem, TarkitError, spell
from tarkit.pipeline.template import ShardTemplate
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.stores.store import StoreOptions
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.location import parse_output

_APART = ("repeated-key", "joined-sample", "scattered-sample", "duplicate-entry")  # irrelevant to names


def next_shards(
    templates: Sequence[ShardTemplate], tmpdir: str | None, storage: StoreOptions | None = None
) -> tuple[list[int], dict[bytes, int]]:
    """Return the index of each template's next shard, and the entries of existing shards with their sizes.

    Raises:
        Problem: a shard cannot be read.
        TarkitError: a shard was compressed since it was written: under its new name it would not count.
    """
    existing = [template.existing(storage) for template in templates]
    for template in templates:
        _refuse_compressed(template, storage)
    try:
        sizes = entries_of([path for shards in existing for _, path in shards], tmpdir, storage)
    except Problem as problem:
        what = f"{spell('update')} reads the entries of each shard"
        problem.hint = f"{what}: repair it with check --fix, or write it again"
        raise
    return [shards[-1][0] + 1 if shards else 0 for shards in existing], sizes


def _refuse_compressed(template: ShardTemplate, storage: StoreOptions | None) -> None:
    for path in template.neighbours(storage):
        base = path[len(template.directory) :]
        if (
            codec_by_suffix(base)
            and template.matches(path) is None
            and template.matches(path.rpartition(".")[0]) is not None
        ):
            what = f"{path}: {spell('update')} cannot read a shard that was compressed"
            raise TarkitError(what, "use the present names of the shards, or move it away")


def entries_of(shards: Sequence[str], tmpdir: str | None, storage: StoreOptions | None = None) -> dict[bytes, int]:
    """Return the names of the entries in shards, with bytes of content; about 150 bytes of memory each.

    Raises Problem for a shard that cannot be read.
    """
    sizes: dict[bytes, int] = {}
    if not shards:
        return sizes
    inputs = DatasetReader([parse_output(path, storage) for path in shards], Policy(_APART), tmpdir=tmpdir)
    for sample in inputs:
        sample.complete()
        sizes.update((entry[0], entry[3]) for entry in sample.raw)
    return sizes
