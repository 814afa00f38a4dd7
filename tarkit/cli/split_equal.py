"""Shards with equally many samples, or about equally many bytes, which take two passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

from tarkit.api.shards import Remainder
from tarkit.cli import options
from tarkit.cli.command import choice, option
from tarkit.errors import Usage
from tarkit.shards.template import ShardTemplate


@dataclass(frozen=True)
class Equal:
    """The number of shards, what is equal in them, and what becomes of samples that are left over."""

    shards: int | None = None
    even: Literal["count", "size"] = "count"
    remainder: Remainder = "spread"

    @property
    def given(self) -> bool:
        """Whether equal shards are requested."""
        return self.shards is not None or self.even == "size"

    def check(self, limited: bool) -> None:
        """Raise Usage for options that cannot be used together; `limited`: -c or -s is given."""
        if self.given and limited:
            raise Usage(f"{'-n' if self.shards else '--even'} cannot be used with -c or -s")
        if self.remainder != "spread" and (self.shards is None or self.even == "size"):
            raise Usage("--remainder requires -n" + (" and equal numbers of samples" if self.shards else ""))

    def number(self, template: ShardTemplate) -> int:
        """Return the number of shards: -n, else that of all names of the template. Raise Usage when it has no end."""
        number = template.count if self.shards is None else self.shards
        if number is None:
            raise Usage(
                "--even size requires a number of shards", "-n 64, or a template with an end: 'out-{00..63}.tar'"
            )
        return number


equal = options.group(
    "equal",
    Equal,
    option("Shards", "-n", "--shards", type=click.IntRange(1), metavar="N", help="N shards with equally many samples."),
    choice(
        "Shards",
        "--even",
        choices="count|size",
        help="What is equal in N shards.",
        more="Samples, or about equal bytes; without -n there are as many shards as TEMPLATE has names.",
    ),
    choice(
        "Shards",
        "--remainder",
        choices="spread|drop|repeat",
        metavar="HOW",
        help="Rest: spread, drop, repeat.",
        more="Samples left over are spread, or dropped, or some come twice so that all shards are full.",
    ),
)
