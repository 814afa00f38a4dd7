"""Write clean copies of shards: their names, and the entries that are kept."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from tarkit.checking.findings import Finding, ShardReport
from tarkit.checking.salvage import NUMBERS, Salvage, Tally, sums, write_clean
from tarkit.checking.shard import Item, OptionalChecks, check_source
from tarkit.errors import TarkitError, Usage, spell
from tarkit.pipeline.output import Output, archive_output, archives_output, refuse_overwrite, status_of
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import parse_template, refuse_template
from tarkit.samples.dataset import open_source
from tarkit.sizes import plural
from tarkit.stores.store import StoreOptions
from tarkit.streams.files import allow_files
from tarkit.streams.location import Location
from tarkit.streams.ranges import CopiedStream, spooled
from tarkit.streams.source import Source, StreamSource
from tarkit.tar.writer import EntryWriter

_NOT_REPAIRED = {"changed-shard", "missing-shard"}  # problems that do not say which samples of the shard are wrong


class Fix:
    """The clean copies of some inputs: one file of all, or, in a directory or by a template, one for each.

    For each input `read` plans its copy while its findings are taken, and `write` writes it.

    Args:
        run: where facts go; each file that is written is reserved in it.
        word: the name of the one copy, a directory, or a template.
        rejects: the name of an archive for samples that are left out.
        together: no key comes twice in all copies; in one file none ever does.
        allowed: problems that are kept as they are.

    Raises:
        TarkitError: a copy exists already, or its directory does not.
        Usage: the copies cannot be named so.
    """

    def __init__(
        self,
        run: Run,
        locations: Sequence[Location],
        word: str,
        rejects: str | None,
        *,
        together: bool,
        allowed: frozenset[str],
        options: StoreOptions | None = None,
    ) -> None:
        self.run = run
        self.allowed = allowed
        self.output = archives_output(word.rstrip("/") or word, None, options=options)
        if self.output.location.kind == "stdout":
            message = f"{spell('fix')} writes to files, the findings go to stdout"
            raise Usage(message, f"name it: {spell('fix', 'clean.tar')}")
        if self.output.location.kind == "url":
            raise Usage(f"{self.output.location.name}: {spell('fix')} writes files", "upload them after the check")
        self.names = _copy_names(word, locations)
        self.single = self.names is None
        self.together = together or self.single
        for name in [self.output.location.text] if self.names is None else self.names:
            if self.names is not None and os.path.lexists(name):
                raise TarkitError(f"{name}: file exists", f"{spell('fix')} replaces no file: remove it first")
            refuse_overwrite(status_of(name), locations)
            run.reserve(name, "the clean copy")
        self.rejects = None if rejects is None else rejects_output(run, locations, rejects, options)
        self.tallies: list[Tally] = []
        self._plans: list[tuple[Salvage, Tally]] = []
        self._unread = False  # an input, or all of it
        self._spooled: CopiedStream | None = None
        self._taken: set[bytes] = set()
        self._last: bytes | None = None  # the last key of the copy before

    def read(self, checks: OptionalChecks, job: tuple[int, Location]) -> Iterator[Item]:
        """Yield the findings of an input, which follows its index, and plan its copy."""
        index, location = job

        def opened() -> Source:
            source = open_source(location, tmpdir=checks.tmpdir, stream=location.kind == "url")
            if isinstance(source, StreamSource):
                source = self._spooled = spooled(source, self._spooled)
            return source

        bad: set[int] = set()  # offsets of entries

        def read(source: Source) -> None:
            tally = Tally(location.name, self.output.location.name if self.names is None else self.names[index])
            self._plans.append((Salvage(source, self.allowed, bad), tally))

        for item in check_source(location, index, checks, opened, read):
            if isinstance(item, Finding) and item.name == "bad-content" and item.name not in self.allowed:
                bad.add(item.offset or 0)
            self._unread = self._unread or (isinstance(item, ShardReport) and not item.readable)
            yield item

    def start(self, stack: ExitStack, inputs: int) -> None:
        """Open the outputs that all inputs share."""
        allow_files(inputs)
        self._rejects = None
        if self.rejects is not None:
            self._rejects = stack.enter_context(EntryWriter(self.rejects.open()))
        self._copy = None
        if self.single:
            self._copy = EntryWriter(self.output.open())
            stack.push(self._end_copy)

    def _end_copy(self, kind: type[BaseException] | None, *_: object) -> None:
        """Complete the single copy; no file is made if an input could not be read and no other input has an entry."""
        assert self._copy is not None
        if kind is None and (not self._unread or any(tally.entries for tally in self.tallies)):
            self._copy.close()
            return
        self._copy.abort()
        for tally in self.tallies:
            tally.output = None

    def write(self, last: bool) -> None:
        """Write the copies of what was read, if no other input has to be known first."""
        if self.together and not last:
            return
        plans, self._plans, self._spooled = self._plans, [], None
        reserved = ChainMap(*[plan.keys for plan, _ in plans])
        for plan, tally in plans:
            taken = self._taken if self.together else set()
            if self._copy is not None:
                copy = self._copy
                write_clean(plan, tally, lambda copy=copy: copy, self._rejects, taken, reserved)  # type: ignore[misc]
                copy.flush()
            else:
                self._write_own(plan, tally, taken, reserved)
            if self._rejects is not None:
                self._rejects.flush()
            self.tallies.append(tally)

    def _write_own(self, plan: Salvage, tally: Tally, taken: set[bytes], reserved: Container[bytes]) -> None:
        """Write the copy of an input to a file of its own, which is opened for its first sample."""
        name = tally.output or ""
        writers: list[EntryWriter] = []

        def copy() -> EntryWriter:
            if not writers:
                writers.append(EntryWriter(self.output.open_named(name)))
            return writers[0]

        try:
            last = write_clean(plan, tally, copy, self._rejects, taken, reserved, self._last)
        except BaseException:
            for writer in writers:
                writer.abort()
            raise
        self._last = last or self._last
        for writer in writers:
            writer.close()
        if not writers:
            tally.output = None

    def results(self, every: bool = False) -> Iterator[tuple[list[str], dict[str, Any]]]:
        """Yield lines on each input and on all together, and set the facts of the run: each entry is counted.

        Args:
            every: give each new name and each lost range a line, not only the first few.
        """
        for tally in self.tallies:
            yield list(tally.lines(every)), tally.record
        total = {name: sum(getattr(tally, name) for tally in self.tallies) for name in NUMBERS}
        lost = sum(stop - start for tally in self.tallies for start, stop, _ in tally.lost)
        cut = sum(tally.cut for tally in self.tallies)
        line = f"fix: {sums(total)}; {plural(total['samples'], 'sample')}"
        left_out = sum(sum(tally.why.values()) for tally in self.tallies)
        line += f", {left_out} left out" if left_out else ""
        line += f"; {plural(lost, 'byte')} lost to damage"
        if cut:
            line += f", and what followed the end of {plural(cut, 'input')}"
        numbers = self.run.facts["fix"] = {**total, "lost_bytes": lost, "end_early": cut}
        yield [line], {"type": "fix-summary", **numbers}

    def whole(self, problems: Container[str]) -> bool:
        """Return whether all samples are in the copies, after problems of the names `problems`."""
        unknown = any(name in problems and name not in self.allowed for name in _NOT_REPAIRED)
        return not self._unread and not unknown and all(tally.whole for tally in self.tallies)


def rejects_output(run: Run, locations: Sequence[Location], word: str, options: StoreOptions | None) -> Output:
    """Return the archive for samples that are left out, and reserve it. Raises Usage if it is an input or stdout."""
    output = archive_output(word, None, options=options)
    if output.location.kind == "stdout":
        raise Usage(f"{spell('rejects')} writes to a file, the findings go to stdout")
    if output.location.kind == "path":
        refuse_overwrite(status_of(output.location.text), locations)
        run.reserve(output.location.text, "the file of rejects")
    return output


def _copy_names(word: str, locations: Sequence[Location]) -> list[str] | None:
    """Return the name of each copy; None when all go to the one that `word` names."""
    last = word.rpartition("/")[2]
    if word.startswith(("pipe:", "file:")):
        return None
    if word.endswith("/") or os.path.isdir(word):
        if not os.path.isdir(word):
            raise TarkitError(f"{word}: no such directory", f"make it: mkdir -p {word}")
        names = []
        for location in locations:
            if location.kind not in ("path", "url"):
                message = f"{location.name} has no file name for a copy in a directory"
                raise Usage(message, f"name the file: {spell('fix', 'clean.tar')}")
            names.append(os.path.join(word, os.path.basename(location.text)))
        if len(set(names)) < len(names):
            raise Usage("two inputs have one file name", f"number the copies: {spell('fix', 'clean-%06d.tar')}")
        return names
    if "%" in last or ("{" in last and ".." in last):
        template = parse_template(word)
        return [template.name(index) for index in range(len(locations))]
    refuse_template(word, f"{spell('fix', 'clean-%06d.tar')} writes a copy of each")
    return None
