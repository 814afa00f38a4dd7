"""Samples that were rejected, back to where they belong: `__error__.json` says what came out before each of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

from tarkit.errors import TarkitError, show
from tarkit.proc.job import Job
from tarkit.proc.policy import ERROR_FIELD
from tarkit.samples.sample import Part, Sample

_BACK = "INPUT is the output of the run that made the rejects; if it was put back there since, leave it out of them"
_MOST = 1 << 20  # bytes of such a record


@dataclass(frozen=True)
class Reject:
    """A sample that failed, without its record; `written` samples came before it, the last with the key `after`. If it
    was `kept`, the next one is this very sample, for which the result is put."""

    sample: Sample
    index: int
    written: int
    after: bytes | None
    kept: bool


def merged(first: Iterator[Sample], rejects: Iterator[Sample]) -> Iterator[Job]:
    """The samples of the first output, which only pass, and between them the rejects, to be worked on once more; those
    that were kept there come in place of themselves.

    Raises TarkitError when the two do not belong together, or a reject is back already.
    """
    written, last = 0, None
    given: set[bytes | None] = set()  # keys of the rejects since the last sample
    reject = _next(rejects)
    for sample in first:
        while reject is not None and reject.written <= written and not reject.kept:
            given.add(reject.sample.key)
            yield _checked(reject, written, last)
            reject = _next(rejects)
        if sample.key is not None and sample.key in given:
            raise TarkitError(
                f"{sample.source.name}: at {sample.start}: {show(sample.key)} is there already, and in the rejects too",
                _BACK,
            )
        if reject is not None and reject.written <= written and sample.key is not None:
            if sample.key != reject.sample.key:
                raise _strange(reject)
            yield _checked(reject, written, last)
            reject = _next(rejects)
        else:
            yield Job(-1, sample, passes=True)
        if sample.key is not None:
            written, last = written + 1, sample.key
            given.clear()
    while reject is not None:
        if reject.kept:
            raise _strange(reject)
        yield _checked(reject, written, last)
        reject = _next(rejects)


def _checked(reject: Reject, written: int, last: bytes | None) -> Job:
    if (reject.written, reject.after) != (written, last):
        raise _strange(reject)
    return Job(reject.index, reject.sample)


def _strange(reject: Reject) -> TarkitError:
    where = "at the start" if reject.after is None else f"behind {show(reject.after)}"
    return TarkitError(
        f"{reject.sample.source.name}: {show(reject.sample.key or b'')} belongs {where}, "
        f"as number {reject.written}, and the inputs have something else there",
        "the inputs are the output, as it was written, of the run that made the rejects",
    )


def _next(rejects: Iterator[Sample]) -> Reject | None:
    sample = next(rejects, None)
    while sample is not None and sample.key is None:  # entries without key, and nothing to work on
        sample = next(rejects, None)
    return None if sample is None else _reject(sample)


def _reject(sample: Sample) -> Reject:
    """What a sample of the rejects says of itself; raises TarkitError."""
    sample.complete()
    name = (sample.key or b"") + b"." + ERROR_FIELD
    record = next((entry for entry in sample.entries if entry.name == name), None)
    try:
        if record is None or record.size > _MOST:
            raise ValueError("no such field")
        said = json.loads(sample.source.read(record.data, record.data + record.size))
        place, index = said["place"], int(said["index"])
        after, written, kept = place["after"], int(place["samples"]), place.get("kept") is True
        sample.entries = [entry for entry in sample.entries if entry is not record]
        parts: list[Part] = [(sample.source, entry.start, entry.stop) for entry in sample.entries]
        sample.parts = parts
        return Reject(sample, index, written, None if after is None else os.fsencode(after), kept)
    except (ValueError, KeyError, TypeError) as error:
        what = f"{show(sample.key or b'')} has no {os.fsdecode(ERROR_FIELD)} that says where it belongs: {error}"
        raise TarkitError(f"{sample.source.name}: {what}", "--redo takes what --rejects wrote") from None
