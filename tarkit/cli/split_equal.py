"""Shards with equally many samples, or about equally many bytes, which take two passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, islice, repeat
from typing import Literal

import click

from tarkit.cli import options
from tarkit.cli.command import choice, option
from tarkit.cli.console import Run
from tarkit.errors import TarkitError, Usage
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.pipeline import neighbours, without_strays
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select
from tarkit.shards.template import ShardTemplate
from tarkit.shards.writer import Limits


@dataclass(frozen=True)
class Equal:
    """The number of shards, what is equal in them, and what becomes of samples that are left over."""

    shards: int | None = None
    even: Literal["count", "size"] = "count"
    remainder: Literal["spread", "drop", "repeat"] = "spread"

    @property
    def given(self) -> bool:
        """Whether equal shards are asked for."""
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


@dataclass
class EqualPlan:
    """The samples after they were counted, and where shards end: `sizes` in samples, else `limits`."""

    samples: Iterator[TarSample]
    sizes: Iterator[int] | None = None
    limits: Limits | None = None


def chosen_samples(inputs: DatasetReader, select: Select, policy: Policy) -> Iterator[TarSample]:
    """Yield the selected samples of all inputs."""
    several = len(inputs.locations) > 1
    return without_strays(neighbours(select(iter(inputs), policy), policy, inputs.tmpdir, several), policy)


def plan_equal(run: Run, inputs: DatasetReader, select: Select, equal: Equal, shards: int, policy: Policy) -> EqualPlan:
    """Read all samples once, and return how to divide them into so many equal shards."""
    remainder, maxerr = equal.remainder, policy.maxerr

    def samples(policy: Policy | None = None) -> Iterator[TarSample]:
        """Read the inputs again; without a policy that prints warnings, silently, as in the counting pass."""
        inputs.policy = policy or Policy(allowed, skipped, maxerr)
        return chosen_samples(inputs, select, inputs.policy)

    allowed, skipped = policy.allowed, policy.skipped
    if equal.even == "size":
        size = _closing_size(run, samples(), shards)
        return EqualPlan(samples(policy), limits=Limits(size=size, rule="content"))
    total = sum(1 for _ in samples())
    each, rest = divmod(total, shards)
    run.note(f"{total} samples for {shards} shards")
    if total == 0 or (each == 0 and remainder != "repeat"):
        if total:
            raise TarkitError(f"{total} samples cannot fill {shards} shards", "--remainder repeat uses some again")
        return EqualPlan(iter(()), iter(()))
    if remainder == "spread":
        return EqualPlan(samples(policy), (each + (index < rest) for index in range(shards)))
    if remainder == "drop":
        if rest:
            run.tell(f"the last {rest} of {total} samples are left out: --remainder drop")
            run.facts["left_out"] = rest
        return EqualPlan(islice(samples(policy), each * shards), repeat(each, shards))
    each += rest > 0
    again = each * shards - total
    if again:
        run.tell(f"{again} samples come twice: --remainder repeat")
        run.facts["repeated"] = again
    rounds = chain.from_iterable(samples() for _ in count(1))
    return EqualPlan(chain(samples(policy), islice(rounds, again)), repeat(each, shards))


def _closing_size(run: Run, samples: Iterator[TarSample], shards: int) -> int:
    """dSort's equal division (ishard-spec DS-OUT-3): a shard closes once its contents are (1 + all bytes) / shards."""
    total = sum(sample.content for sample in samples)
    size = -(-(1 + total) // shards)
    run.note(f"{total} bytes of content for {shards} shards, each closes at {size}")
    return size


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
