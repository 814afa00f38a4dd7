"""Rows of options that verbs which write shards share, and the map from names to categories."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tarkit.errors import Usage, spell
from tarkit.options import Options, row
from tarkit.pipeline.rows import WRITABLE, file_row
from tarkit.shards.limits import SizeRule
from tarkit.stores.schemes import scheme_of
from tarkit.stores.store import StoreOptions

if TYPE_CHECKING:
    from tarkit.pipeline.run import Run
    from tarkit.shards.categories import Map

TEMPLATE_MORE = (
    "The number of a shard is %06d; with a last one, {0000..4096..8} or @04096. Without a number, -%06d goes "
    f"before the suffix. {WRITABLE}"
)


def _parse_post(command: str) -> str:
    if re.fullmatch("-?[0-9]+", command.strip()):
        hint = f"did you mean parallel work? {spell('post')} is for a command that runs after each shard"
        raise Usage(f"{spell('post', command)}: a number is not a command", hint)
    return command


def template_row(default: str) -> Any:
    """Return the row of the names of shards; `default` is that of the help."""
    help = f"Names, or URLs.  [default: {default}]"
    return row(
        "Output", "-o", "--output", "--outputs", metavar="TEMPLATE", help=help, more=TEMPLATE_MORE, role="output"
    )


def size_row(default: str) -> Any:
    """Return the row of the size of a shard; `default` says when it has which default."""
    help, more = f"Size limit in bytes.  [default {default}]", "SIZE is a number such as 500M, 16MiB or 1e9."
    return row("Shards", "-s", "--size", metavar="SIZE", help=help, more=more)


def post_row(*names: str) -> Any:
    """Return the row of a command that runs after each shard."""
    return row(
        "Output",
        *names,
        metavar="COMMAND",
        help="Run COMMAND after each shard; {} is its name.",
        more="It runs when the shard is complete, and may move or delete it.",
        parse=_parse_post,
    )


COUNT: Any = row("Shards", "-c", "--count", metavar="N", help="At most N samples in a shard.", at_least=1)
SHARDS: Any = row(
    "Shards", "-n", "--shards", metavar="N", help="Number of shards, with equally many samples.", at_least=1
)
SIZE_RULE: Any = row(
    "Shards",
    "--size-rule",
    default="tar",
    choices=SizeRule,
    help="What SIZE limits.",
    more="tar: the archive, which does not exceed it. content: the contents of its files; a shard is closed once they "
    "reach it, as in tarp and ishard.",
)
FORCE: Any = row(
    "Output",
    "--force",
    default=False,
    help="Replace existing shards.",
    more="Others of the same names that are not written are removed.",
)


class SeriesOptions(Options):
    """How numbered shards are written: options of each verb that writes some, and defaults of others."""

    force: bool = FORCE
    append: bool = False
    start: int | None = None
    post: str | None = None

    @property
    def repair(self) -> str:
        """What to do about existing shards."""
        return f"{spell('force')} replaces them"


MANIFEST: Any = file_row("Output", "--manifest", "List shards in FILE: samples, bytes, sha256, keys.")
MAP: Any = row(
    "Categories",
    "--map",
    role="map",
    metavar="FILE|JSON",
    help="Shards by category, as in ishard and dSort.",
    more='It is JSON, {"cats-%06d.tar": ["cat/.*", "glob:pets/cat*"]}, or lines PATTERN TEMPLATE.',
)
MAP_SEP: Any = row("Categories", "--map-sep", metavar="TEXT", help="Column separator in FILE.  [default: blanks]")
UNMATCHED: Any = row(
    "Categories",
    "--unmatched",
    metavar="TEMPLATE",
    help="Shards for samples in no category.",
    more="Without it such samples are left out and counted.",
)


@dataclass(frozen=True)
class MapOptions:
    """A map from names to categories, and how it is read.

    Attributes:
        map: its file, its JSON, or a dict; None without a map.
        map_sep: the separator of the columns in the file.
        unmatched: the template of samples in no category.

    Raises:
        Usage: there is no map, but other options are given.
    """

    map: str | os.PathLike[str] | Mapping[str, Sequence[str]] | None = None
    map_sep: str | None = None
    unmatched: str | None = None

    def __post_init__(self) -> None:
        if self.map is None and (self.map_sep, self.unmatched) != (None, None):
            raise Usage(f"{spell('map_sep')} and {spell('unmatched')} require {spell('map')}")

    @property
    def spec(self) -> str | None:
        """The name of the file, or JSON."""
        if isinstance(self.map, Mapping):
            import json

            return json.dumps(dict(self.map))
        return None if self.map is None else os.fspath(self.map)

    def read(
        self,
        run: Run,
        directory: str = "",
        extension: str = ".tar",
        storage: StoreOptions | None = None,
    ) -> Map:
        """Read the map; its templates are relative to `directory`. `storage` says how its URL is reached."""
        from tarkit.shards.categories import read_map

        spec = self.spec
        assert spec is not None
        if os.path.isfile(spec) or scheme_of(spec):
            run.reserve(spec, "the map", written=False)
        return read_map(
            spec,
            unmatched=self.unmatched,
            sep=self.map_sep,
            extension=extension,
            directory=directory,
            storage=storage,
        )
