"""Put any number of samples into any order, in bounded memory: sort, shuffle, and joins rest on it.

An order is a function that gives each sample a *rank*: bytes whose byte order is the wanted one. Samples of equal rank
stay in the order in which they came, so every order is stable. The bytes that come out do not depend on `memory`, nor
on whether a sample comes from a file or a stream.

Two ways, each sample by the one that its source allows:

- by ranges: samples of files stay where they are; a compact list of ranks and ranges is sorted, and they are copied
  from the files in their new order. Data are read once and written once, beside the headers.
- by runs: samples of streams are collected up to `memory`, sorted, and written to a temporary file as one run; the
  runs are merged. Data are read twice and written twice, always in sequence; temporary space is the size of the data.
  What fits into `memory` needs none. Whoever wants this for files too opens them as streams (`Inputs.stream`).

A list that is larger than `memory` is sorted in runs itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tarkit.dataset.sample import Sample
from tarkit.problems import Policy

Rank = Callable[[Sample, int], bytes | None]

LEAST = 1 << 23  # bytes of memory with which there is still something to be done


@dataclass
class Arrange:
    """Iterate over `samples` in the order of their ranks.

    `rank(sample, ordinal)` gives the rank of a sample, whose bytes can be read meanwhile; `ordinal` counts the samples
    from 0 as they come. None says that it has none, as it lacks a field: `absent(sample)` then gives it one, or None
    to leave it out, or raises; without `absent` such a sample is left out.

    With a policy in `gather` samples of one key become one sample: those of one input as they are (they were scattered
    in it), those of two inputs if `joined-sample` is allowed. Entries stay in the order in which they came, the first
    one says the ordinal, and `duplicate-entry` is judged. `rank` is asked again about what was gathered, and `absent`
    only about samples that nothing more can be gathered to.

    `memory` is in bytes, for data and lists together. Samples that come out can be written until the next is asked for;
    their entries are read again when somebody wants them. `note` hears which way was taken, and why.

    Afterwards `taken` samples came in, `joined` of them became part of another, `left_out` were left out, and `given`
    came out; that nothing else became of any is made sure before the end, by an AssertionError.
    """

    samples: Iterator[Sample]
    rank: Rank
    memory: int
    tmpdir: str | None = None
    note: Callable[[str], None] = lambda text: None
    gather: Policy | None = None
    absent: Callable[[Sample], bytes | None] | None = None
    taken: int = 0
    joined: int = 0
    left_out: int = 0
    given: int = 0

    def __iter__(self) -> Iterator[Sample]:
        """Yield the samples."""
        raise NotImplementedError
