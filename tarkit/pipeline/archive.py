"""Write the samples of a dataset to one archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from tarkit import errors
from tarkit.errors import show
from tarkit.pipeline.output import Output, total_size
from tarkit.pipeline.stages import neighbours, without_strays
from tarkit.problems import ONE_ARCHIVE
from tarkit.samples.sample import SampleBatch, singly
from tarkit.streams.location import is_view
from tarkit.tar.writer import EntryWriter
from tarkit.threads import codec_threads

if TYPE_CHECKING:
    from tarkit.pipeline.chain import Chain
    from tarkit.pipeline.run import Run
    from tarkit.pipeline.steps import Flow


def check_keys(batches: Iterator[SampleBatch], data: Chain, flow: Flow) -> Iterator[SampleBatch]:
    """Yield the samples to write, and apply the policy to keys that are there twice. Raises Usage; see `Flow`."""
    flow.refuse_repeats()
    policy, tmpdir = flow.run.policy, flow.inputs.tmpdir
    if not flow.as_view:
        batches = with_columns_told(batches, data, flow)
    return neighbours(batches, policy, tmpdir, flow.keys_may_repeat, flow.is_repeated)


def with_columns_told(batches: Iterator[SampleBatch], data: Chain, flow: Flow) -> Iterator[SampleBatch]:
    """Yield the samples to write, and tell which columns of views are no fields of the first: files have fields alone.

    Nothing is told where the user says which fields there are.
    """
    chosen = any(step.name == "select" or getattr(step, "assignments", None) for step in data.steps)
    if chosen or not flow.columns or (first := next(batches, None)) is None:
        return batches
    from tarkit.samples.lookup import FieldLookup
    from tarkit.samples.values import Name

    sample = next(iter(first.part(0, 1)))
    fields = FieldLookup(sample).fields
    if columns := [column for column in flow.columns if not Name(column).is_in(fields)]:
        words = f"columns are not written, as {show(sample.key or b'')} has no such fields"
        way = "set" if errors.command_line is None else "tarkit cat --set"
        flow.run.tell(f"{words}: {', '.join(map(show, columns))}; {way} makes fields of them")
    return chain((first,), batches)


def write_archive(
    data: Chain, output: Output, run: Run, after_sample: Callable[[int], None] | None = None
) -> tuple[bytes, bytes]:
    """Write all samples of a dataset to one archive.

    `after_sample` is called after each sample with the length so far in bytes.

    Returns:
        The first and the last key, empty if there is no sample.
    """
    if is_view(output.location):
        from tarkit.pipeline.view_writer import write_view

        return write_view(data, output, run, after_sample)
    run.policy.strict |= ONE_ARCHIVE
    output = output._replace(threads=codec_threads())
    locations, whole = data.locations, data.unchanged
    moves = not (whole and len(locations) == 1)
    batches, flow = data.batches(run, moves=moves, directory=output.directory, decode_ahead=True)
    first = last = None
    with flow, EntryWriter(flow.open(output, data.locations)) as writer:
        total = total_size(locations) if data.permutes else None
        batches = check_keys(batches, data, flow)
        if output.has_samples_alone:
            batches = without_strays(batches, run.policy)
        if after_sample is not None:
            batches = singly(batches)
        shown = flow.inputs.draws
        for batch in run.count(batches) if shown else run.watch("writing", batches, lambda: writer.position, total):
            batch.write(writer)
            first, last = first or batch.first_key, batch.key
            if after_sample is not None:
                after_sample(writer.position)
        writer.wait()  # `finish` checks whether files have changed, and must not be early
        flow.finish()
        writer.finish(flow.inputs.zeros if whole else None)
    run.bytes += writer.position
    return first or b"", last or b""
