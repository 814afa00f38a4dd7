"""Write the samples of a run to one archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tarkit.api.output import Output, total_size
from tarkit.problems import ONE_ARCHIVE
from tarkit.samples.pipeline import neighbours
from tarkit.samples.sample import TarSample
from tarkit.tar.writer import EntryWriter

if TYPE_CHECKING:
    from tarkit.api.chain import Chain
    from tarkit.api.run import Run
    from tarkit.api.steps import Flow


def write_archive(
    data: Chain, output: Output, run: Run, each: Callable[[int], None] | None = None
) -> tuple[bytes, bytes]:
    """Write all samples of a dataset to one archive.

    `each` is called after each sample with the length so far in bytes.

    Returns:
        The first and the last key, empty if there is no sample.
    """
    run.policy.strict |= ONE_ARCHIVE
    locations, whole = data.locations, data.unchanged
    samples, flow = data.samples(run, moves=not (whole and len(locations) == 1), directory=output.directory)
    first = last = None
    with flow, EntryWriter(flow.open(output, data.inputs)) as writer:
        total = total_size(locations) if data.keeps_all else None
        for sample in run.watch(apart(samples, flow), lambda: writer.position, total):
            sample.write(writer)
            first, last = first or sample.key, sample.key
            if each is not None:
                each(writer.position)
        flow.finish()
        writer.finish(flow.inputs.zeros if whole else None)
    run.bytes += writer.position
    return first or b"", last or b""


def apart(samples: Iterator[TarSample], flow: Flow) -> Iterator[TarSample]:
    """Return the samples to write; two with the same key are a problem for the policy."""
    policy, tmpdir = flow.run.policy, flow.inputs.tmpdir
    return flow.counted(neighbours(samples, policy, tmpdir, flow.keys_may_repeat, flow.is_repeated))
