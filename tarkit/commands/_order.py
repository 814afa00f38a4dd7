"""What commands that put samples in order have in common: a bar while they read, and what came in and out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tarkit.commands._output import total_size
from tarkit.commands._run import Run
from tarkit.dataset.order import Arrange
from tarkit.dataset.sample import Sample
from tarkit.streams.location import Location


def reading(run: Run, samples: Iterator[Sample], locations: Sequence[Location]) -> Iterator[Sample]:
    """Draw a bar of the bytes read while samples come in; there is another one while they go out."""
    if not run.shows_progress:
        return samples
    passed = before = count = 0
    source = None

    def counted() -> Iterator[Sample]:
        nonlocal passed, before, count, source
        for sample in samples:
            if sample.source is not source:
                source, before = sample.source, passed
            passed = before + sample.stop
            count += 1
            yield sample

    return run.draw(counted(), lambda: passed, lambda: count, total_size(locations))


def note_order(run: Run, arranged: Arrange) -> None:
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
