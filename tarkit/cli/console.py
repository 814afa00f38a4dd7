"""The run of a command: common options, messages, progress, the summary and the report.

Whatever else writes to the terminal does so within `streams.terminal.progress_hidden`, which hides the bars meanwhile.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tarkit.cli.command import CommonOptions, given
from tarkit.cli.messages import bars, bars_hidden, say
from tarkit.errors import Usage, show
from tarkit.pipeline.output import written_path
from tarkit.pipeline.run import Run
from tarkit.redaction import hide_secrets
from tarkit.sizes import and_more, plural
from tarkit.streams import terminal
from tarkit.streams.copy import is_pipe
from tarkit.streams.sink import Sink, open_sink
from tarkit.streams.text import create_file

if TYPE_CHECKING:
    from tarkit.pipeline.output import Output
    from tarkit.pipeline.run import CommandOutput
    from tarkit.stores.store import StoreOptions

Item = TypeVar("Item")

PAUSE = 0.1  # seconds between two updates of the bar
PIECE = 1 << 16  # bytes of what a command printed that are passed on at a time


class ConsoleRun(Run):
    """One run of a command: the common options, and what the summary and the report say."""

    def __init__(
        self,
        command: str,
        options: CommonOptions,
    ) -> None:
        super().__init__(tmpdir=options.tmpdir)
        self.command = command
        self.verbose, self.quiet, self.progress = options.verbose, options.quiet, options.progress
        self.jobs = ""  # of a run of jobs: how many, and what became of them
        self.extra = ""  # more words for the summary
        self._drawing: list[object] = []  # what draws now is the last; the others wait
        self.started = time.monotonic()
        self.report = written_path(options.report)
        self._stdout = ""  # what is written to stdout
        if self.report == "-":
            self.take_stdout("the report")
        self.reserve(self.report, "the report")
        share_terminal(self.shows_progress)
        self.part_of_many = self.report is not None and self.report.startswith("/dev/fd/")  # as jobs report

    @property
    def stdout_taken(self) -> bool:
        """Whether something is written to stdout."""
        return bool(self._stdout)

    def take_stdout(self, what: str) -> None:
        """Note what is written to stdout; raise Usage if that is something else already."""
        if self._stdout not in ("", what):
            raise Usage(f"stdout is {self._stdout}, and {what} too", "--report FILE, or -o FILE, names a file for one")
        self._stdout = what

    def reserve_output(self, output: Output) -> None:
        """Register an output; raise Usage if it has a second role."""
        if output.location.kind in ("path", "url"):
            self.reserve(output.location.text, "the output")
        elif output.location.kind == "stdout":
            self.take_stdout("the output")

    def note(self, text: str) -> None:
        """Print a line with --verbose."""
        if self.verbose and not self.quiet:
            say(text)

    def warn(self, text: str) -> None:
        """Print a warning, except with --quiet."""
        if not self.quiet:
            say(text, role="warning")

    def tell(self, text: str) -> None:
        """Print a line that is not a warning, except with --quiet."""
        if not self.quiet:
            say(text)

    def relay(self, key: bytes, log: Sequence[CommandOutput]) -> None:
        """Print what was printed for a sample, with --verbose with the key before each line, except with --quiet."""
        if self.quiet:
            return
        prefix = show(key)[1:-1].encode() + b": " if self.verbose else b""
        with terminal.progress_hidden() as hidden, suppress(OSError):  # stderr is closed
            for output in log:
                _relay(output, prefix, hidden)

    def remove_others(self, paths: Sequence[str], options: StoreOptions | None = None) -> None:
        """Remove old shards that were not replaced, for --force, and print their names."""
        super().remove_others(paths, options)
        if paths:
            for name in paths if self.verbose else [and_more(paths)]:
                self.tell(f"{name}: removed: --force leaves no other shards of this name")

    @property
    def shows_progress(self) -> bool:  # type: ignore[override]
        """Whether to draw a progress bar: by --progress, else if stderr is a terminal and stdout is not a pipe."""
        if self.quiet or self.progress is False or not sys.stderr:
            return False
        if self.progress:
            return True
        return os.isatty(2) and not is_pipe(1)

    def draw(
        self,
        doing: str,
        items: Iterator[Item],
        position: Callable[[], int],
        samples: Callable[[], int],
        total: int | None = None,
    ) -> Iterator[Item]:
        """Return the items; draw a bar of the bytes, from the second item on, unless `items` draws one itself."""
        return self._draw(doing, items, position, samples, total) if self.shows_progress else items

    def _draw(
        self,
        doing: str,
        items: Iterator[Item],
        position: Callable[[], int],
        samples: Callable[[], int],
        total: int | None,
    ) -> Iterator[Item]:
        bar: Any = None
        started, due = time.monotonic(), 0.0
        self._drawing.append(items)
        try:
            for item in items:
                yield item
                now = time.monotonic()
                if now >= due and self._drawing[-1] is items:
                    due = now + PAUSE
                    if bar is None:
                        bar = make_bar(f"{self.command}: {doing}" if doing else self.command, total, now - started)
                    rate = samples() / max(now - started, 1e-3)
                    bar.set_postfix_str(f"{plural(samples(), 'sample')}, {rate:.0f}/s", refresh=False)
                    bar.update(position() - bar.n)
            if bar is not None and total is not None:
                bar.total = position()  # the end of an archive is not a sample, and not all may be selected
        finally:
            self._drawing.remove(items)
            if bar is not None:
                bar.n = position()
                bar.set_postfix_str(plural(samples(), "sample"), refresh=False)
                end_bar(bar)

    def finish(self, table: Sequence[str] = ()) -> None:
        """Print the lines of a table and the summary; write the report."""
        seconds = time.monotonic() - self.started
        dropped = dict(self.policy.dropped)
        summary = {
            "command": self.command,
            "samples": self.samples,
            "bytes": self.bytes,
            "shards": self.shards,
            "seconds": round(seconds, 3),
            "problems": dict(self.policy.counts),
            "skipped": dropped,
            **({"dropped": self.dropped} if self.dropped else {}),
            **({"missing": list(self.policy.missing)} if self.policy.missing else {}),
            **self.facts,
        }
        if "jobs" in self.facts:  # their problems are in their own messages
            del summary["problems"], summary["skipped"]
        if not self.quiet and (self.verbose or self.shows_progress or dropped):
            for line in table:
                say(line)
            counts = [self.jobs] if self.jobs else []
            if not self.jobs or self.samples:
                counts += [plural(self.samples, "sample"), plural(self.bytes, "byte")]
            if self.shards:
                counts.append(plural(self.shards, "shard"))
            text = f"{self.command}: {', '.join(counts)}{self.extra}, {seconds:.2f} s"
            if dropped:
                text += ", skipped for " + ", ".join(f"{name}: {count}" for name, count in dropped.items())
            if missing := self.policy.missing_words:
                text += f"; {missing}"
            if self.dropped:
                text += f" ({plural(self.dropped, 'sample')} left out)"
            say(text)
        if self.report:
            import json

            with open_sink("stdout", "-") if self.report == "-" else create_file(self.report) as sink:
                sink.write(json.dumps(_public(summary), indent=2).encode() + b"\n")


class JsonLines:
    """JSON objects on stdout, one a line, without secrets. It is written when it is closed, or is long."""

    def __init__(self, run: ConsoleRun) -> None:
        run.take_stdout("the JSON")
        self._sink: Sink = open_sink("stdout", "-")

    def write(self, **record: Any) -> None:
        """Write an object."""
        import json

        self._sink.write(json.dumps(_public(record)).encode() + b"\n")

    def close(self) -> None:
        """End the output."""
        self._sink.close()


def _public(value: Any) -> Any:
    """Return a value of JSON without secrets in its texts."""
    if isinstance(value, dict):
        return {name: _public(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_public(each) for each in value]
    return hide_secrets(value) if isinstance(value, str) else value


def current() -> ConsoleRun:
    """Return the run of the current command, made from the common options."""
    context = click.get_current_context()
    run: ConsoleRun | None = context.meta.get("tarkit.run")
    if run is None:
        options = CommonOptions(**given(CommonOptions, context))
        run = context.meta["tarkit.run"] = ConsoleRun(context.info_name or "tarkit", options)
    return run


def share_terminal(shared: bool) -> None:
    """Say whether this run shows progress bars, which are hidden while commands and outputs write to the terminal."""
    bars.clear()
    terminal.hide_progress = bars_hidden if shared else terminal.nothing_hidden


def _relay(output: CommandOutput, prefix: bytes, whole: bool) -> None:
    """Write output to stderr, each line after a prefix; end the last line too if there is a prefix, or if `whole`."""
    pos = 0
    border = True  # between lines
    while data := output.read(pos, pos + PIECE):
        pos += len(data)
        ended = data.endswith(b"\n")
        if prefix:
            data = (prefix if border else b"") + data[: -1 if ended else None].replace(b"\n", b"\n" + prefix)
            data += b"\n" * ended
        border = ended
        while data:
            data = data[os.write(2, data) :]
    if (prefix or whole) and not border:
        os.write(2, b"\n")


def make_bar(name: str, total: int | None, seconds: float, unit: str = "B", scale: bool = True) -> Any:
    """Return a bar for work that began `seconds` ago. It is closed with the command, before an error is printed."""
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # no thread
    bar = tqdm(
        total=total, unit=unit, unit_scale=scale, desc=name, file=sys.stderr, leave=True, mininterval=0, miniters=0
    )
    bar.start_t = bar.last_print_t = bar.start_t - seconds
    bars.append(bar)
    click.get_current_context().call_on_close(lambda: end_bar(bar))
    return bar


def end_bar(bar: Any) -> None:
    """Draw a bar for the last time, and go to the next line."""
    bars[:] = [each for each in bars if each is not bar]
    bar.close()
