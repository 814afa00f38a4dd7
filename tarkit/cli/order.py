"""What commands that put samples in order have in common: a bar while they read, and what came in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tarkit.cli.console import Run
from tarkit.cli.output import total_size
from tarkit.cli.target import Opened
from tarkit.problems import Policy
from tarkit.samples.fields import Fields
from tarkit.samples.pipeline import judged, neighbours
from tarkit.samples.sample import TarSample
from tarkit.sorting.sorter import Sorter
from tarkit.streams.location import Location


def reading(run: Run, samples: Iterator[TarSample], locations: Sequence[Location]) -> Iterator[TarSample]:
    """Draw a bar of the bytes read while samples come in; there is another one while they go out."""
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
    """Write all samples, with the fields that were chosen: as they are where nothing changes and none can be joined."""
    joins = "joined-sample" in policy.allowed and arranged.gather is None
    if fields.all and opened.template is None and not joins:
        opened.write_all(run, lambda writer: arranged.pour(writer, judged(policy)), check)
    else:
        distinct = arranged.distinct or fields.rekey is not None
        opened.write(run, neighbours(fields(iter(arranged), policy), policy, arranged.tmpdir, distinct), check)


def note_order(run: Run, arranged: Sorter) -> None:
    """Say and report what came in and what came out."""
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
