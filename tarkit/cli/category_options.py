"""The options of --map, which assigns names to categories, for split and shard."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tarkit.cli import options
from tarkit.cli.command import choice, option
from tarkit.cli.console import ConsoleRun
from tarkit.errors import TarkitError, Usage, show
from tarkit.samples.sample import TarSample

if TYPE_CHECKING:
    from tarkit.shards.categories import Map
    from tarkit.shards.template import Notation

REACTIONS = "error|warn|skip"
ALIASES = {"abort": "error", "ignore": "skip", "exclude": "skip"}


@dataclass(frozen=True)
class MapOptions:
    """The options of a map; `spec` is its file name or JSON, None without a map."""

    spec: str | None = None
    sep: str | None = None
    first_match: bool = False
    unmatched: str | None = None
    on_unmatched: str = "warn"
    on_bad_line: str = "error"

    def __post_init__(self) -> None:
        defaults = (None, False, None, "warn", "error")
        said = (self.sep, self.first_match, self.unmatched, self.on_unmatched, self.on_bad_line)
        if self.spec is None and said != defaults:
            raise Usage("--map-sep, --first-match, --unmatched, --on-unmatched and --on-bad-line require --map")
        if self.unmatched is not None and self.on_unmatched != "warn":
            raise Usage("--unmatched and --on-unmatched: choose one")

    def read(self, run: ConsoleRun, directory: str = "", extension: str = ".tar", notation: Notation = "auto") -> Map:
        """Read the map; its templates are relative to `directory`."""
        from tarkit.shards.categories import read_map

        assert self.spec is not None
        if os.path.isfile(self.spec):
            run.reserve(self.spec, "the map", written=False)
        say = {"error": None, "warn": run.warn, "skip": lambda line: None}[self.on_bad_line]
        return read_map(
            self.spec,
            unmatched=self.unmatched,
            first_match=self.first_match,
            sep=self.sep,
            extension=extension,
            directory=directory,
            notation=notation,
            bad_line=say,
        )


class Unmatched:
    """The samples in no category, by --on-unmatched: an error, or a number in the summary."""

    def __init__(self, name: str, reaction: str) -> None:
        self.count = 0
        self._name = name
        self._reaction = reaction
        self._first = b""

    def __call__(self, sample: TarSample) -> None:
        """Count one; raise TarkitError if it is an error."""
        if not self.count:
            self._first = sample.key or b""
        self.count += 1
        if self._reaction == "error":
            what = f"{sample.source.name}: at {sample.start}: {show(self._first)} is in no category of {self._name}"
            raise TarkitError(what, "--unmatched TEMPLATE writes such samples, --on-unmatched warn drops them")

    def tell(self, run: ConsoleRun) -> None:
        """Print how many there were."""
        run.facts["unmatched"] = self.count
        if self.count:
            run.extra = f", {self.count} in no category"
        if self.count and self._reaction == "warn":
            what = "1 sample is" if self.count == 1 else f"{self.count} samples are"
            run.warn(f"{what} in no category of {self._name} and left out, {show(self._first)} first")


map_options = options.group(
    "map_",
    MapOptions,
    option(
        "Categories",
        "--map",
        "spec",
        metavar="FILE|JSON",
        help="Shards by category, as in ishard and dSort.",
        more='It is JSON, {"cats-%06d.tar": ["cat/.*", "glob:pets/cat*"]}, or lines PATTERN TEMPLATE.',
    ),
    option("Categories", "--map-sep", "sep", metavar="TEXT", help="Column separator in FILE.  [default: blanks]"),
    option("Categories", "--first-match", is_flag=True, help="Take the first of several categories, else fail."),
    option("Categories", "--unmatched", metavar="TEMPLATE", help="Shards for samples in no category."),
    choice(
        "Categories",
        "--on-unmatched",
        choices=REACTIONS,
        default="warn",
        aliases=ALIASES,
        metavar="HOW",
        help="No category: error, warn, skip.",
        more="With warn they are counted; with skip they are left out silently.",
    ),
    choice(
        "Categories",
        "--on-bad-line",
        choices=REACTIONS,
        aliases=ALIASES,
        metavar="HOW",
        help="Malformed line: error, warn, skip.",
    ),
)
