"""What `proc` prints besides its output: what commands print, and a summary."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tarkit.cli.console import ConsoleRun
from tarkit.cli.messages import bars
from tarkit.cli.proc_options import Kind
from tarkit.errors import show
from tarkit.proc.engine import CommandOutput
from tarkit.proc.run import SampleRun

PIECE = 1 << 16  # bytes of what a command printed that are passed on at a time


def summarize(run: ConsoleRun, results: SampleRun, kind: Kind) -> None:
    """Add counts to the summary of a run; print notes on samples that failed or were removed."""
    failures, removed = results.failures, results.removed
    skipped = failures.failed if failures.on_error == "skip" else 0
    run.facts |= {"done": failures.done - failures.failed, "failed": failures.failed, "left_out": skipped}
    run.facts |= {"removed": removed, "kept": failures.failed - skipped}
    run.extra = f", {failures.done - failures.failed} done, {skipped} skipped, {failures.failed} failed"
    run.extra += f", {removed} removed" if removed else ""
    if results.slowest[0] > 0:
        seconds, key = results.slowest
        run.facts["slowest"] = {"key": os.fsdecode(key), "seconds": round(seconds, 3)}
        run.extra += f", slowest {show(key)} with {seconds:.2f} s"
    _tell_removed(run, results, kind)
    if failures.failed:
        became = "was left out" if skipped else "was kept as it came in"
        many = became.replace("was", "were").replace("it", "they")
        run.tell(
            f"1 sample failed and {became}" if failures.failed == 1 else f"{failures.failed} samples failed and {many}"
        )


def _tell_removed(run: ConsoleRun, results: SampleRun, kind: Kind) -> None:
    """Print a note when a program removed samples, or all samples were removed."""
    failures, removed = results.failures, results.removed
    done = failures.done - failures.failed
    samples = f"{done} samples" if done != 1 else "1 sample"
    if removed and kind == "worker":
        had = "had no answer and was" if removed == 1 else "had no answer and were"
        run.tell(f"{removed} of {samples} {had} removed")
    elif (left := results.nothing_left(kind)) is not None:
        run.warn(left)


def relay(run: ConsoleRun, key: bytes, log: Sequence[CommandOutput]) -> None:
    """Print the output of a command, under -v with the key before each line."""
    if run.quiet:
        return
    prefix = show(key)[1:-1].encode() + b": " if run.verbose else b""
    for bar in bars:
        bar.clear()
    try:
        for each in log:
            _relay(each, prefix)
    except OSError:
        pass  # stderr is closed
    for bar in bars:
        bar.refresh()


def _relay(output: CommandOutput, prefix: bytes) -> None:
    pos = 0
    border = True  # between lines
    while data := output.read(pos, pos + PIECE):
        pos += len(data)
        if prefix:
            ended = data.endswith(b"\n")
            data = (prefix if border else b"") + data[: -1 if ended else None].replace(b"\n", b"\n" + prefix)
            data, border = data + b"\n" * ended, ended
        while data:
            data = data[os.write(2, data) :]
    if prefix and not border:
        os.write(2, b"\n")
