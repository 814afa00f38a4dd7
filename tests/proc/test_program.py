"""proc --worker below the command: what programs may do, what is an error, and the outcome of each sample."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import TarkitError
from tarkit.problems import Policy
from tarkit.proc import pool as pools
from tarkit.proc import program
from tarkit.proc.job import Job, Outcome
from tarkit.proc.pool import Pool
from tarkit.proc.program import TOGETHER, ProgramWorker, RunProgram
from tarkit.samples.reader import SampleReader
from tarkit.streams.files import Descriptor, File
from tarkit.streams.source import FileSource
from tests._copies import Copied
from tests._tools import archive, each_row, member, on_disk, slow
from tests.proc._jobs import ABC, each_job, reasons
from tests.proc._jobs import written as contents

MANY = {f"{number:04}.{field}": b"%d" % number for number in range(40) for field in ("cls", "txt")}

# A program in Python: its body handles each entry.
PROGRAM = """
import io, os, signal, sys, tarfile, time
source = tarfile.open(fileobj=sys.stdin.buffer, mode="r|")
target = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
def put(name, data, **more):
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(data), 1234567890
    for key, value in more.items():
        setattr(info, key, value)
    target.addfile(info, io.BytesIO(data))
{}
for entry in source:
    data = source.extractfile(entry).read()
    key, _, field = entry.name.partition(".")
    {}
{}
target.close()
"""


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run these programs as forks of this process."""
    monkeypatch.setattr(subprocess, "Popen", Copied)


def python(body: str, end: str = "", begin: str = "") -> list[str]:
    """Return the command of such a program; `body` handles one entry."""
    return [sys.executable, "-I", "-S", "-c", PROGRAM.format(begin, body.replace("\n", "\n    "), end)]


def shell(text: str) -> list[str]:
    """Return the arguments of a shell command."""
    return ["bash", "-o", "pipefail", "-c", text]


def started(words: list[str], isolate: bool = False, **settings: Any) -> Pool:
    """Return a pool of programs; with `isolate` failures do not end the run."""
    step = RunProgram(command="it", on_error="skip" if isolate else "error", **settings)
    return Pool(lambda: ProgramWorker(step, words, None), **step.way, batch=TOGETHER, exact=True)


def run(
    words: list[str],
    data: bytes,
    parallel: int = 1,
    isolate: bool = False,
    retries: int = 0,
    timeout: float | None = None,
) -> list[tuple[Job, Outcome]]:
    """Run programs over an archive; no thread is left."""
    before = threading.active_count()
    with started(words, isolate, processes=parallel, retries=retries, timeout=timeout) as pool:
        finished = list(pool(each_job(data)))
    assert threading.active_count() == before
    return finished


def written(finished: list[tuple[Job, Outcome]]) -> list[tuple[str, bytes]]:
    """Return names and contents of the results."""
    return contents(outcome for _, outcome in finished)


def failed(finished: list[tuple[Job, Outcome]]) -> dict[str, str]:
    """Return the reasons of failed samples, by key."""
    return {job.key.decode(): outcome.failure.reason for job, outcome in finished if outcome.failure}


ECHO = "put(entry.name, data)"
UPPER = "put(entry.name, data.upper())"
TEXT = "if field == 'txt': put(entry.name, data)"
NEW = "put(key + '.new', data) if field == 'cls' else None"
CONCATENATED = "put(entry.name, data); target.close(); target = tarfile.open(fileobj=sys.stdout.buffer, mode='w|')"


@each_row(
    ("words", "parallel", "out"),
    [
        (["cat"], 2, lambda name, data: [(name, data)]),
        (python(UPPER), 1, lambda name, data: [(name, data.upper())]),
        (python(TEXT), 1, lambda name, data: [(name, data)] * name.endswith("txt")),
        (python("if key != 'b': put(entry.name, data)"), 1, lambda name, data: [(name, data)] * (name[0] != "b")),
        (python("if key == 'c': put(entry.name, data)"), 2, lambda name, data: [(name, data)] * (name[0] == "c")),
        (python("pass"), 1, lambda name, data: []),
        (python(NEW), 1, lambda name, data: [(name[:2] + "new", data)] * name.endswith("cls")),
        (python(CONCATENATED), 2, lambda name, data: [(name, data)]),
        (shell("cat | cat"), 1, lambda name, data: [(name, data)]),
        (shell("tar -f - --delete --wildcards '*.cls'"), 1, lambda name, data: [(name, data)] * name.endswith("txt")),
    ],
)  # fmt: skip
def test_valid_programs(
    words: list[str],
    parallel: int,
    out: Callable[[str, bytes], list[tuple[str, bytes]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs may copy, change, add and drop fields and samples, and concatenate archives, in several processes."""
    monkeypatch.setattr(program, "TOGETHER", 1)
    for number in {1, parallel}:
        assert written(run(words, archive(ABC), number)) == [pair for each in ABC.items() for pair in out(*each)]


def test_unchanged_samples() -> None:
    """An unchanged sample is returned itself, with its entries without a key, for any headers by the program."""
    data = member("a.txt", b"x", mtime=77) + member("README", b"r") + member("a.cls", b"3", mode=0o600) + bytes(1024)
    [(job, outcome)] = run(python(ECHO), data)
    assert outcome.samples == (job.sample,)
    [(job, outcome)] = run(python(UPPER), data)
    assert [entry.name for entry in outcome.samples[0].entries] == [b"README", b"a.txt", b"a.cls"]


def test_programs_that_read_all_before_they_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that read all input before they answer get all of it, without a deadlock."""
    monkeypatch.setattr(program, "TOGETHER", 5)
    monkeypatch.setattr(pools, "HELD", 10_000)
    held = python("held.append((entry.name, data))", "for each in held: put(*each)", "held = []")
    for words, parallel in ((shell("f=$(mktemp); cat > $f; cat $f; rm $f"), 1), (held, 1), (python(ECHO), 3)):
        assert written(run(words, archive(MANY), parallel)) == list(MANY.items())


def test_large_samples() -> None:
    """Samples larger than pipes and buffers are sent; large answers go to temporary files."""
    big = os.urandom(1 << 20) * 3
    data = {"a.bin": b"x", "b.bin": big, "b.txt": b"y", "c.bin": big[:-5]}
    assert written(run(["cat"], archive(data), 2)) == list(data.items())
    turned = {name: content[::-1] for name, content in data.items()}
    assert written(run(python("put(entry.name, data[::-1])"), archive(data), 2)) == list(turned.items())


def test_no_samples() -> None:
    """Without samples no program is started; entries without a key pass."""
    assert run(["/no/such/program"], archive({})) == []
    finished = run(["/no/such/program"], archive({"README": b"x"}))
    assert written(finished) == [("README", b"x")]


NOT_SENT = "which it was not sent, or answered before"
NOT_ALL = "the program ended with status 0 before it had read all its input"
NOTHING = "it wrote nothing, not even an empty archive"
RULES = [
    (python("if entry.name == 'b.cls': put('z.txt', data)"), f"the program answered 'z', {NOT_SENT}"),
    (python("if key == 'b': put('README' + field, data)"), "the program answered 'READMEcls', which has no key"),
    (
        python("put(entry.name, b'', type=b'2', linkname='x')"),
        "the program answered 'a.cls', which is not a regular file",
    ),
    (python("put(entry.name, data)\nput(entry.name, data)"), "its output: 'a.cls' occurs twice"),
    (python("pass", "put('b.x', b'1')\nput('a.x', b'1')"), "the program answered 'a' too late: a later sample"),
    (shell("cat >&2 | true"), NOTHING),
    (shell("cat > /dev/null"), NOTHING),
    (shell("cat > /dev/null; echo hello; echo problem >&2"), "its output: the input ends inside a header.*: problem"),
    (shell("tr a b"), "its output: this is not a tar archive: bad checksum in the first header"),
    (shell("head -c 3000"), f"{NOT_ALL}|its output: .*"),
    (shell("head -c 3072; cat > /dev/null"), "its output: no end-of-archive marker after 'c.cls'|its output: .*"),
    (shell("head -c 100 > /dev/null; head -c 10240 /dev/zero"), NOT_ALL),
    (shell("exit 3"), "the program ended with status 3"),
    (shell("cat; exit 3"), "the program ended with status 3"),
    (shell("cat | (cat; false)"), "the program ended with status 1"),
    (shell("kill -9 $$"), "the program was ended by SIGKILL"),
    (python("put(entry.name, data)\nos.kill(os.getpid(), signal.SIGSEGV)"), "the program was ended by SIGSEGV"),
    (["sh", "-c", "no-such-program"], "the program ended with status 127.*not found"),
]


@each_row(("words", "said"), RULES)
def test_invalid_programs(words: list[str], said: str) -> None:
    """A violation ends the run with the pending samples in the message; it is never taken for the end of the stream."""
    with pytest.raises(TarkitError) as raised:
        run(words, archive(ABC))
    assert re.match(f"worker it: ({said})", str(raised.value)), raised.value
    assert "\n" not in str(raised.value)
    if "had read all" in said or "exit" not in words[-1]:
        # samples that were not sent when the program ended are not pending
        assert re.search("pending samples: '[abc]'(, '[bc]')*|SIGKILL|status 1$|status 127", str(raised.value))


def test_a_program_that_cannot_be_started() -> None:
    with pytest.raises(TarkitError, match="'/no/such/program' cannot be started: No such file"):
        run(["/no/such/program"], archive(ABC))


def test_answers_in_another_order() -> None:
    """A late answer ends every run, since the skipped sample counts as removed."""
    late = python("pass", "put('b.x', b'1')\nput('a.x', b'1')")
    with pytest.raises(TarkitError, match="the program answered 'a' too late: a later sample was answered before it"):
        run(late, archive(ABC), isolate=True)


def test_a_program_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """If failures do not end the run, some samples are sent one by one, and then the run ends."""
    monkeypatch.setattr(program, "MAX_FAILURES", 5)
    for words in (shell("exit 3"), shell("sleep 0.02; exit 3"), shell("head -c 100 > /dev/null; exit 3")):
        with pytest.raises(TarkitError, match="worker it: the program ended with status 3"):
            run(words, archive(MANY), isolate=True)
    assert len(failed(run(shell("head -c 1 > /dev/null; exit 3"), archive(ABC), isolate=True))) == 3


def test_many_pending_samples() -> None:
    """Some pending samples are named, the others counted."""
    with pytest.raises(
        TarkitError, match=r"(?m)pending samples: '0000', '0001', '0002', '0003', '0004' and \d+ more: oh no$"
    ):
        run(python("pass", "sys.stderr.write('oh no')\nsys.exit(4)"), archive(MANY))


BAD = {
    "exit": "if key in ('0007', '0012'): os._exit(5)\nput(entry.name, data)",
    "raise": "if key in ('0007', '0012'): raise ValueError(key)\nput(entry.name, data)",
    "kill": "if key in ('0007', '0012'): os.kill(os.getpid(), signal.SIGKILL)\nput(entry.name, data)",
    "rename": "put(entry.name if key not in ('0007', '0012') else 'x' + entry.name, data)",
    "link": "put(entry.name, data, type=b'2' if key in ('0007', '0012') else b'0')",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "parallel", "reason"),
    [("exit", 1, "the program ended with status 5"), ("rename", 2, f"the program answered 'x{{}}', {NOT_SENT}")],
)
def test_samples_that_end_the_program(kind: str, parallel: int, reason: str) -> None:
    """Samples that end the program are found by halving; all others are processed once, in order."""
    data = dict(list(MANY.items())[:26])
    finished = run(python(BAD[kind]), archive(data), parallel, isolate=True)
    assert written(finished) == [(name, data) for name, data in data.items() if name[:4] not in failed(finished)]
    assert failed(finished) == {key: reason.format(key) for key in ("0007", "0012")}


@pytest.mark.parametrize("seed", [0, *map(slow, range(1, 4))])
def test_programs_that_die_at_random(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample has one outcome, in order, while programs delay answers, die of samples, and more are not read."""
    monkeypatch.setattr(program, "TOGETHER", 3)
    monkeypatch.setattr(pools, "HELD", 15_000)
    draw = random.Random(seed)
    bad = sorted(draw.sample(range(40), 2))
    late = f"""if int(key) in {bad}: os._exit(5)
held.append((entry.name, data))
while len(held) > {draw.choice((0, 3, 100))}: put(*held.pop(0))"""
    words = python(late, "for each in held: put(*each)", "held = []")
    finished = run(words, archive(MANY), 3, isolate=True)
    assert [job.index for job, _ in finished] == list(range(40))
    assert list(failed(finished)) == [f"{number:04}" for number in bad]
    assert written(finished) == [(name, data) for name, data in MANY.items() if int(name[:4]) not in bad]


@pytest.mark.parametrize(("kind", "status"), [("raise", 1), ("kill", -9), ("link", None)])
def test_one_of_a_few_samples_fails(kind: str, status: int | None) -> None:
    finished = run(python(BAD[kind]), archive({f"{number:04}.txt": b"x" for number in (6, 7)}), isolate=True)
    assert list(failed(finished)) == ["0007"]
    assert written(finished) == [("0006.txt", b"x")]
    [(job, failure)] = [(job, outcome.failure) for job, outcome in finished if outcome.failure]
    assert (failure.status, job.failures) == (status, 1)
    assert (b"ValueError: 0007" in failure.tail) == (kind == "raise")


def test_retries(tmp_path: Path) -> None:
    """A sample is retried alone, and counts once."""
    flaky = f"""if key == 'b':
    with open({str(tmp_path / "count")!r}, 'a') as file: file.write('x')
    if os.path.getsize({str(tmp_path / "count")!r}) < 4: os._exit(1)
put(entry.name, data)"""
    data = archive({f"{key}.txt": b"x" for key in "ab"})
    finished = run(python(flaky), data, isolate=True, retries=2)
    assert failed(finished) == {}
    assert [job.key for job, _ in finished] == [b"a", b"b"]
    (tmp_path / "count").unlink()
    [(job, _)] = [each for each in run(python(flaky), data, isolate=True, retries=1) if each[1].failure]
    assert job.failures == 2


def test_a_program_that_takes_too_long() -> None:
    """A program that takes too long is ended, and the sample responsible is found."""
    hangs = python("if key == 'b': time.sleep(60)\nput(entry.name, data)")
    with pytest.raises(TarkitError, match="worker it: the program took too long; pending samples: 'a', 'b', 'c'"):
        run(hangs, archive(ABC), timeout=1)
    finished = run(hangs, archive(ABC), timeout=1, isolate=True)
    assert failed(finished) == {"b": "the program took too long"}
    assert written(finished) == [(name, data) for name, data in ABC.items() if name[0] != "b"]


def test_two_samples_of_one_key() -> None:
    """A second sample with the same key fails if it follows the first; otherwise both are processed."""
    parts = [archive({"a.txt": b"1"}), archive({"b.txt": b"1"}), archive({"a.txt": b"2"})]

    def chosen(*numbers: int) -> Iterator[Job]:
        for index, number in enumerate(numbers):
            yield Job(index, next(iter(SampleReader(on_disk(parts[number]), Policy()))))

    with started(["cat"]) as pool:
        finished = list(pool(chosen(0, 2)))
    said = "has the key of the sample before it: a reader would join the two"
    assert reasons(outcome for _, outcome in finished) == ["", said]
    with started(["cat"]) as pool:
        assert written(list(pool(chosen(0, 1, 2)))) == [("a.txt", b"1"), ("b.txt", b"1"), ("a.txt", b"2")]


def test_links_are_not_sent() -> None:
    """A link fails without being sent, and no other sample does."""
    data = member("a.txt", b"1") + member("b.txt", typeflag=b"2", linkname=b"x") + member("c.txt", b"1") + bytes(1024)
    finished = run(["cat"], data)
    assert failed(finished) == {"b": "has 'b.txt', a symbolic link, which has no content to work on"}
    assert written(finished) == [("a.txt", b"1"), ("c.txt", b"1")]


@pytest.mark.parametrize("isolate", [False, True])
def test_a_sample_that_cannot_be_read(isolate: bool, tmp_path: Path) -> None:
    """The read error is reported, not the effect of truncated input on the program."""
    path = tmp_path / "x.tar"
    path.write_bytes(archive(ABC))
    source = FileSource(File(Descriptor(os.open(path, os.O_RDONLY)), "x.tar", str(path)), "x.tar")

    def chosen() -> Iterator[Job]:
        for index, sample in enumerate([*SampleReader(source, Policy())]):
            yield Job(index, sample)
            (tmp_path / "new").write_bytes(b"something else")
            (tmp_path / "new").rename(path)
            source.file.close()

    with (
        started(python(UPPER), isolate, processes=2) as pool,
        pytest.raises(TarkitError, match=r"(?m)^x\.tar: the file was changed while it was read$"),
    ):
        list(pool(chosen()))
