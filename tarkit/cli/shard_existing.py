"""What stands where the shards of `shard` will stand: looked at before the tree is listed, which may take long."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from tarkit.cli.shard_plan import PackOptions
from tarkit.errors import Problem, TarkitError
from tarkit.shards.template import ShardTemplate
from tarkit.streams.codecs import codec_by_suffix


def refuse_existing(templates: Sequence[ShardTemplate], pack: PackOptions, update: bool) -> None:
    """Raise FileNotFoundError for a folder that is not there, TarkitError for shards that are and may not be."""
    for template in templates:
        if template.directory and not os.path.isdir(template.directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), template.name(0))
        existing = [] if pack.force or pack.resume or update else template.existing()
        if existing:
            more = f" and {len(existing) - 1} more" if len(existing) > 1 else ""
            raise TarkitError(
                f"{existing[0][1]}{more}: there are shards of this name",
                "--resume keeps those that are as planned, --update packs what is new, --force replaces them",
            )


def there(templates: Sequence[ShardTemplate], scratch: str | None) -> tuple[list[int], dict[bytes, int]]:
    """The number that each template goes on with, and the entries of the shards that are there, with their sizes."""
    from tarkit.packing.resume import entries_of

    existing = [template.existing() for template in templates]
    for template in templates:
        _refuse_packed(template)
    try:
        known = entries_of([path for found in existing for _, path in found], scratch)
    except Problem as problem:
        problem.hint = "--update has to know what is in each shard: mend it with check --fix, or make it again"
        raise
    return [found[-1][0] + 1 if found else 0 for found in existing], known


def _refuse_packed(template: ShardTemplate) -> None:
    """Raise TarkitError for a shard that was compressed since, by which it got another name: it would not count."""
    if not os.path.isdir(template.directory or "."):
        return
    for base in sorted(os.listdir(template.directory or ".")):
        path = template.directory + base
        if (
            codec_by_suffix(base)
            and template.matches(path) is None
            and template.matches(path.rpartition(".")[0]) is not None
        ):
            raise TarkitError(
                f"{path}: a shard that was compressed: --update does not look into it",
                "name the shards as they are called now, or move it away",
            )
