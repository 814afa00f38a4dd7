"""The options of --map, which assigns names to categories, for split and shard."""

from __future__ import annotations

from tarkit.api.split import MapOptions
from tarkit.cli import options
from tarkit.cli.command import choice, option

REACTIONS = "error|warn|skip"
ALIASES = {"abort": "error", "ignore": "skip", "exclude": "skip"}

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
