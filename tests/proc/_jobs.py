"""Jobs for the samples of an archive, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tarkit.problems import Policy
from tarkit.proc.job import Job, Outcome
from tarkit.samples.reader import SampleReader
from tarkit.tar.writer import EntryWriter
from tests._tools import Log, contents, on_disk

ABC = {f"{key}.{field}": f"{key}{field}".encode() for key in "abc" for field in ("cls", "txt")}


def each_job(data: bytes, allow: Iterable[str] = ()) -> Iterator[Job]:
    """Yield a job for each sample of an archive, as it is read."""
    for index, sample in enumerate(SampleReader(on_disk(data), Policy(allow=[*allow]))):
        yield Job(index, sample, passes=sample.key is None)


def jobs(data: bytes, allow: Iterable[str] = ()) -> list[Job]:
    """Return the jobs of an archive."""
    return list(each_job(data, allow))


def written(outcomes: Iterable[Outcome]) -> list[tuple[str, bytes]]:
    """Return names and contents of the results of jobs, as Python's `tarfile` reads them."""
    sink = Log()
    with EntryWriter(sink) as writer:
        for outcome in outcomes:
            for sample in outcome.samples:
                sample.write(writer)
    return contents(bytes(sink.data))


def reasons(outcomes: Iterable[Outcome]) -> list[str]:
    """Return why jobs failed, an empty text for those that did not."""
    return [outcome.failure.reason if outcome.failure else "" for outcome in outcomes]
