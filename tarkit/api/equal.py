"""Equal shards, which take two passes: equal in number of samples, or about equal in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, count, islice, repeat
from typing import Literal

from tarkit.api.archive import apart
from tarkit.api.chain import Chain
from tarkit.api.run import Run
from tarkit.api.shards import ShardsOutput
from tarkit.api.steps import Flow
from tarkit.errors import TarkitError
from tarkit.samples.pipeline import neighbours, without_strays
from tarkit.samples.sample import TarSample
from tarkit.shards.writer import Series

Remainder = Literal["spread", "drop", "repeat"]


def write_equal(
    data: Chain, output: ShardsOutput, run: Run, shards: int, even: Literal["count", "size"], remainder: Remainder
) -> Series:
    """Write a dataset to so many shards, equal in number of samples or about equal in bytes.

    Args:
        remainder: of samples that are left over when all shards have equally many: the first shards have one more
            (`spread`), they are left out (`drop`), or samples come again until all shards are full (`repeat`).

    Raises:
        TarkitError: there are fewer samples than shards.
    """
    output.refuse_inputs(data.locations)
    samples, flow = data.samples(run, directory=output.output.folder, spool=True)
    samples = without_strays(apart(samples, flow), run.policy)
    if even == "size":
        size = _closing_size(run, _again(flow), shards)
        output.limits = replace(output.limits, size=size, rule="content")
    else:
        samples = _sized(run, output, samples, flow, shards, remainder)
    return output.write_samples(samples, flow)


def _again(flow: Flow) -> Iterator[TarSample]:
    """The samples that are written, once more, without warnings."""
    policy = flow.run.policy.silent()
    return without_strays(neighbours(flow.again(policy), policy, flow.inputs.tmpdir, flow.distinct), policy)


def _sized(
    run: Run, output: ShardsOutput, samples: Iterator[TarSample], flow: Flow, shards: int, remainder: Remainder
) -> Iterator[TarSample]:
    """Count the samples and set how many each shard gets; the samples that are written."""
    total = sum(1 for _ in _again(flow))
    each, rest = divmod(total, shards)
    run.note(f"{total} samples for {shards} shards")
    if total == 0 or (each == 0 and remainder != "repeat"):
        if total:
            raise TarkitError(f"{total} samples cannot fill {shards} shards", "--remainder repeat uses some again")
        output.sizes = iter(())
        return iter(())
    if remainder == "spread":
        output.sizes = (each + (index < rest) for index in range(shards))
        return samples
    if remainder == "drop":
        if rest:
            run.tell(f"the last {rest} of {total} samples are left out: --remainder drop")
            run.facts["left_out"] = rest
        output.sizes = repeat(each, shards)
        return islice(samples, each * shards)
    each += rest > 0
    again = each * shards - total
    if again:
        run.tell(f"{again} samples come twice: --remainder repeat")
        run.facts["repeated"] = again
    output.sizes = repeat(each, shards)
    return chain(samples, islice(chain.from_iterable(_again(flow) for _ in count(1)), again))


def _closing_size(run: Run, samples: Iterator[TarSample], shards: int) -> int:
    """The size at which a shard closes, as in dSort's equal division: (1 + the bytes of all contents) / shards."""
    total = sum(sample.content for sample in samples)
    size = -(-(1 + total) // shards)
    run.note(f"{total} bytes of content for {shards} shards, each closes at {size}")
    return size
