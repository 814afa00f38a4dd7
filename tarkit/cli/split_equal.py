"""Equal shards, which take two passes: equal in number of samples, or about equal in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

from tarkit.api.shards import Remainder
from tarkit.cli import options
from tarkit.errors import Usage
from tarkit.shards.template import ShardTemplate


@dataclass(frozen=True)
class Equal:
    """How many shards, equal in what, and what becomes of samples that are left over."""

    shards: int | None = None
    even: Literal["count", "size"] = "count"
    remainder: Remainder = "spread"

    @property
    def given(self) -> bool:
        """Whether shards are to be equal."""
        return self.shards is not None or self.even == "size"

    def check(self, limited: bool) -> None:
        """Raise Usage for options that do not go together; `limited` says that there is -c or -s."""
        if self.given and limited:
            raise Usage(f"{'-n' if self.shards else '--even'} makes equal shards: it does not go with -c or -s")
        if self.remainder != "spread" and (self.shards is None or self.even == "size"):
            raise Usage("--remainder is about -n" + (" and equal numbers of samples" if self.shards else ""))

    def number(self, template: ShardTemplate) -> int:
        """How many shards: -n, or else all names that the template has. Raises Usage when it has no end."""
        number = template.count if self.shards is None else self.shards
        if number is None:
            raise Usage("--even size wants a number of shards", "-n 64, or a template with an end: 'out-{00..63}.tar'")
        return number


def _equal(shards: int | None, even: Literal["count", "size"], remainder: Remainder) -> Equal:
    return Equal(shards, even, remainder)


equal = options.group(
    "equal",
    _equal,
    click.option("-n", "--shards", type=click.IntRange(1), metavar="N", help="N shards with equally many samples."),
    click.option(
        "--even",
        type=click.Choice(["count", "size"]),
        default="count",
        metavar="count|size",
        help="N shards equal in samples or about equal in bytes; without -n as many as TEMPLATE has.  [default: count]",
    ),
    click.option(
        "--remainder",
        type=click.Choice(["spread", "drop", "repeat"]),
        default="spread",
        metavar="spread|drop|repeat",
        help="With -n, samples left over: spread or drop them, or repeat some to fill up.  [default: spread]",
    ),
)
