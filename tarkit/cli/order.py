"""Common parts of commands that sort: a progress bar while they read, writing, and the numbers of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tarkit.cli.console import Run
from tarkit.cli.output import total_size
from tarkit.cli.target import Opened
from tarkit.problems import Policy
from tarkit.samples.fields import Fields
from tarkit.samples.pipeline import neighbours
from tarkit.samples.sample import TarSample
from tarkit.sorting.sorter import Sorter
from tarkit.streams.location import Location


def reading(run: Run, samples: Iterator[TarSample], locations: Sequence[Location]) -> Iterator[TarSample]:
    """Draw a bar of the bytes read while samples are read; writing has another one."""
    if not run.shows_progress:
        return samples
    passed = before = count = 0
    source = None

    def counted() -> Iterator[TarSample]:
        nonlocal passed, before, count, source
        for sample in samples:
            if sample.source is not source:
                source, before = sample.source, passed
            passed = before + sample.stop
            count += 1
            yield sample

    return run.draw(counted(), lambda: passed, lambda: count, total_size(locations))


def write_in_order(
    run: Run, opened: Opened, arranged: Sorter, fields: Fields, policy: Policy, check: Callable[[], None]
) -> None:
    """Write all samples in their order, with the fields that were chosen."""
    rekeyed = fields.rekey is not None
    repeated = None if rekeyed else lambda: arranged.repeated
    samples = fields(iter(arranged), policy)
    apart = neighbours(samples, policy, arranged.tmpdir, arranged.distinct or rekeyed, repeated)
    opened.write(run, apart, check)


def note_order(run: Run, arranged: Sorter) -> None:
    """Report the numbers of samples that were read and written."""
    run.facts["order"] = {
        "in": arranged.taken,
        "gathered": arranged.joined,
        "left_out": arranged.left_out,
        "out": arranged.given,
    }
    run.note(
        f"{arranged.taken} samples came in, {arranged.joined} became parts of others, {arranged.left_out} were left "
        f"out, and {arranged.given} came out"
    )
