"""Equal shards, which take two passes: equal in number of samples, or about equal in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, islice, repeat
from typing import Literal

import click

from tarkit.cli import options
from tarkit.cli.console import Run
from tarkit.errors import TarkitError, Usage
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.samples.pipeline import neighbours, without_strays
from tarkit.samples.sample import TarSample
from tarkit.samples.select import Select
from tarkit.shards.limits import Limits
from tarkit.shards.template import ShardTemplate


@dataclass(frozen=True)
class Equal:
    """How many shards, equal in what, and what becomes of samples that are left over."""

    shards: int | None = None
    even: Literal["count", "size"] = "count"
    remainder: str = "spread"

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


@dataclass
class EqualPlan:
    """The samples, once they have been counted, with what cuts them: `sizes` in samples, or else `limits`."""

    samples: Iterator[TarSample]
    sizes: Iterator[int] | None = None
    limits: Limits | None = None


def chosen_samples(inputs: DatasetReader, select: Select, policy: Policy) -> Iterator[TarSample]:
    """The samples of all inputs that were selected."""
    several = len(inputs.locations) > 1
    return without_strays(neighbours(select(iter(inputs), policy), policy, inputs.tmpdir, several), policy)


def plan_equal(run: Run, inputs: DatasetReader, select: Select, equal: Equal, shards: int, policy: Policy) -> EqualPlan:
    """What makes so many equal shards; all samples are read once before."""
    remainder, maxerr = equal.remainder, policy.maxerr

    def samples(policy: Policy | None = None) -> Iterator[TarSample]:
        """One pass over the inputs; without a policy that tells, as silent as the one in which they were counted."""
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


def _equal(shards: int | None, even: Literal["count", "size"], remainder: str) -> Equal:
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
