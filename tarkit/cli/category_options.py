"""The options of --map, which assigns names to categories, for split and shard."""

from __future__ import annotations

from tarkit.cli import options
from tarkit.cli.command import option
from tarkit.shards.split import MapOptions

categories = options.group(
    "categories",
    MapOptions,
    option(
        "Categories",
        "--map",
        metavar="FILE|JSON",
        help="Shards by category, as in ishard and dSort.",
        more='It is JSON, {"cats-%06d.tar": ["cat/.*", "glob:pets/cat*"]}, or lines PATTERN TEMPLATE.',
    ),
    option("Categories", "--map-sep", metavar="TEXT", help="Column separator in FILE.  [default: blanks]"),
    option(
        "Categories",
        "--unmatched",
        metavar="TEMPLATE",
        help="Shards for samples in no category.",
        more="Without it such samples are left out and counted.",
    ),
)
