"""proc --map below the command: arguments of the function, its results, and the end of its process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from itertools import chain
from mmap import mmap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from tarkit.errors import TarkitError
from tarkit.pipeline.run import Run
from tarkit.problems import Policy
from tarkit.proc import function as functions
from tarkit.proc import result
from tarkit.proc.child import IDLE, PLACE, read_place, write_place
from tarkit.proc.function import CallFunction, FunctionWorker
from tarkit.proc.job import Job, Outcome, WorkFailed
from tarkit.proc.pool import Pool
from tarkit.proc.result import SampleBuilder
from tarkit.samples.reader import SampleReader
from tests._copies import Copied, Popen
from tests._tools import archive, each_row, member, on_disk
from tests.proc._jobs import ABC, jobs, reasons, written

FIELDS = ["a", "b.png", "C", "z" * 120, "\udcff", "é"]
CONTENTS = [b"", b"x", b"y" * 512, b"z" * 700]

MODULE = """
    import os, signal, sys, threading, time
    from collections import UserDict

    def same(s): return s
    def facts(s): return {"py": repr(list(s.items())).replace(" ", "")}
    def nothing(s): return None if s["__key__"] == "b" else s
    def empty(s): return [] if s["__key__"] == "b" else [s]
    def many(s):
        for n in range(2):
            s["__key__"], s["n"] = f"{s['__key__'][:1]}/{n}", str(n)
            yield s
    def other(s): return UserDict(s, txt="é", cls=bytearray(b"1"), bin=memoryview(b"2"), __key__="d.x/" + s["__key__"])
    def drop(s):
        del s["cls"]
        return s
    def swap(s): s["cls"], s["txt"] = s["txt"], s["cls"]; return s
    def talk(s):
        print("out", s["__key__"])
        print("err", s["__key__"], file=sys.stderr)
        os.write(1, b"raw " + s["__key__"].encode() + b"\\n")
        print("no end", end="")
        return {"in": sys.stdin.read() + "|"}
    def loud(s): print("x" * 3_000_000); return s

    def on_b(act):
        def function(s):
            if s["__key__"] == "b": return act(s)
            return s
        return function
    def fails(s):
        raise ValueError(f"no {s['__key__']}\\nat all")
    raises = on_b(fails)
    leaves = on_b(lambda s: sys.exit(3))
    ends = on_b(lambda s: os._exit(0))
    kills = on_b(lambda s: os.kill(os.getpid(), signal.SIGKILL))
    crashes = on_b(lambda s: (print("before"), os.kill(os.getpid(), signal.SIGSEGV)))
    def stays(s): threading.Thread(target=time.sleep, args=(60,)).start(); return s
    cut_b = on_b(lambda s: (os.closerange(0, 100), time.sleep(60)))
    hangs = on_b(lambda s: time.sleep(60))
    forks = on_b(lambda s: {"txt": "parent" if os.fork() else "child"})
    closes = on_b(lambda s: (os.closerange(0, 3), {"txt": "x"})[1])

    loaded = []
    def load(): loaded.append(1); print("loading")
    def count(s): return {"n": f"{len(loaded)} {os.getpid()}"}
    pid = count

    def lazy(l):
        for s in l: yield None if s["__key__"] == "b" else [s, {**s, "__key__": s["__key__"] + "2"}]
    def poison(l):
        if any(s["__key__"] == "b" for s in l): raise ValueError("b is in it")
        return l
    def one_bad(l): return [3 if s["__key__"] == "b" else s for s in l]
    def kill_batch(l): return os._exit(7)
    def named(s):
        with open("name") as file: return globals()[file.read()](s)
    number = 3
    class Space:
        def inner(s): return s
"""


Start = Callable[..., FunctionWorker]


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run Python programs as forks of this process."""
    monkeypatch.setattr(subprocess, "Popen", Copied)


@pytest.fixture
def python(copies: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run Python programs as new processes, as users do."""
    monkeypatch.setattr(subprocess, "Popen", Popen)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Yield a function that returns an executor for a function of the module above; it ends with the test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fun.py").write_text(textwrap.dedent(MODULE))
    made: list[FunctionWorker] = []

    def start(function: str, tell: Callable[[str], None] = lambda line: None, **settings: Any) -> FunctionWorker:
        spec = function if ":" in function else f"fun.py:{function}"
        made.append(FunctionWorker(CallFunction(function=spec, **settings), str(tmp_path), tell))
        return made[-1]

    yield start
    for each in made:
        each.end("terminate")
        each.close()
    assert [path.name for path in tmp_path.iterdir() if path.name == "__pycache__" or ".part" in path.name] == []


def set_named(name: str) -> None:
    """Make `named` call this function, so that one process can test several functions."""
    Path("name").write_text(name)


def run(worker: FunctionWorker, jobs: list[Job]) -> list[Outcome]:
    """Return the outcomes of jobs that a worker gets together, in this thread."""
    pool = Pool(lambda: worker, batch=len(jobs), batch_bytes=1 << 62, exact=True, here=True)
    return [outcome for _, outcome in pool(iter(jobs))]


def said(outcome: Outcome) -> str:
    """Return the output of a job."""
    return "".join(each.read(0, 1 << 30).decode() for each in outcome.log)


def fields(*templates: str) -> list[tuple[str, bytes]]:
    """Return names and contents for the samples a, b and c."""
    words = [template.format(key).split(" ") for key in "abc" for template in templates]
    return [(name, content.encode()) for name, content in words]


def test_results_of_functions(start: Start) -> None:
    """A function may return a dict, several, or None; an iterable is read item by item, so a dict may be reused.

    It may close descriptors 0 to 2, which the results do not use.
    """
    some = [(name, data) for name, data in ABC.items() if name[0] != "b"]
    executor = start("named")
    for function, out in {
        "closes": [*some[:2], ("b.txt", b"x"), *some[2:]],
        "same": list(ABC.items()),
        "nothing": some,
        "empty": some,
        "drop": [(name, data) for name, data in ABC.items() if "cls" not in name],
        "swap": fields("{0}.cls {0}txt", "{0}.txt {0}cls"),
        "facts": fields("{0}.py [('__key__','{0}'),('cls',b'{0}cls'),('txt',b'{0}txt')]"),
        "many": fields(*(f"{{0}}/{n}.{f}" for n in "01" for f in ("cls {0}cls", "txt {0}txt", f"n {n}"))),
        "other": fields("d.x/{0}.cls 1", "d.x/{0}.txt é", "d.x/{0}.bin 2"),
    }.items():
        set_named(function)
        outcomes = run(executor, jobs(archive(ABC)))
        assert reasons(outcomes) == [""] * 3
        assert written(outcomes) == out, function


@pytest.mark.parametrize("spec", ["fun.py:same", "fun.py:Space.inner", "fun:same", "./fun.py:same"])
def test_names_of_functions(spec: str, start: Start) -> None:
    """A function is named by file, by class and file, or by module."""
    assert written(run(start(spec), jobs(archive(ABC)))) == list(ABC.items())


def test_names_that_are_no_utf8(start: Start) -> None:
    """Keys and fields are str, of any bytes."""
    [outcome] = run(start("facts"), jobs(member(b"\xff.\xfe", b"x") + bytes(1024)))
    assert outcome.samples[0].key == b"\xff"
    assert b"udcff" in outcome.samples[0].source.read(0, 2000)


INVALID = {
    "3": "returned an int, not a dict, several dicts or None",
    "'abc'": "returned a str, not a dict, several dicts or None",
    "[s, 3]": "returned an int among several, not a dict",
    "[s, None]": "returned None among several, not a dict",
    "[s, dict(s)]": "returned two samples with the key 'a': set another __key__ for each",
    "{}": "returned a sample without fields; return None for no sample",
    "{**s, '__key__': b'a'}": "returned a bytes as __key__, not a str",
    "{**s, '__key__': 'a.b'}": "gave the invalid key 'a.b': a key is not empty and has no dot after its last",
    "{**s, '__key__': ''}": "gave the invalid key ''",
    "{**s, '__key__': 'd/'}": "gave the invalid key 'd/'",
    "{**s, '__key__': '/etc/a'}": "gave the key '/etc/a', which is absolute or contains '..'",
    "{**s, 3: b''}": "returned a field whose name is an int, not a str",
    "{**s, '': b''}": "returned a field with the invalid name ''",
    "{**s, 'x/y': b''}": "returned a field with the invalid name 'x/y'",
    "{**s, 'x\\0': b''}": "returned a field with the invalid name 'x\\x00'",
    "{**s, '__url__': b''}": "returned a field named '__url__'; the only such name is __key__",
    "{**s, 'n': 3}": "field 'n' is an int, not bytes or str; decode encodes other values by the name of the field",
    "{**s, 'n': None}": "field 'n' is None, not bytes or str",
    "{**s, 'n': '\\udc80'}": "field 'n': 'utf-8' codec can't encode character",
    "(x for x in [s, 1/0])": "raised ZeroDivisionError in rubbish.py, line",
}


def test_invalid_results(start: Start, tmp_path: Path) -> None:
    """An invalid result is a failure, with the reason, of that sample only."""
    functions = "\n".join(f"def f{n}(s): return {text}" for n, text in enumerate(INVALID))
    all_of_them = "def each(s): return globals()['f' + s['n'].decode()]({'__key__': 'a', 'x': s['x']})\n"
    (tmp_path / "rubbish.py").write_text(f"{functions}\n{all_of_them}")
    rows = [((f"{n:03}.n", b"%d" % n), (f"{n:03}.x", b"")) for n in range(len(INVALID))]
    outcomes = run(start("rubbish.py:each"), jobs(archive(chain.from_iterable(rows))))
    assert written(outcomes) == []
    for (text, expected), reason in zip(INVALID.items(), reasons(outcomes), strict=True):
        assert reason.startswith(expected), text


def test_samples_that_are_not_dicts(start: Start) -> None:
    """Two fields of one name, a field named __key__, and a link are failures of that sample."""
    data = member("a.txt", b"1") + member("b.__key__", b"2") + member("c.txt", typeflag=b"2", linkname=b"x")
    data += member("d.txt", b"1") + member("d.txt", b"2") + bytes(1024)
    assert reasons(run(start("same"), jobs(data, allow=["duplicate-entry"]))) == [
        "",
        "has a field named __key__, which is reserved for the key",
        "has 'c.txt', a symbolic link, which has no content to work on",
        "has two fields of the same name",
    ]


DIED = "the process that calls the function "


def test_failures(start: Start) -> None:
    """Any failure concerns one sample, and the others are processed; a traceback has no frame of tarkit."""
    executor = start("named")
    for function, status, reason, tail in (
        ("raises", None, r"raised ValueError in fun.py, line \d+", r"Traceback.*in fails\n.*Error: no b\nat all\n"),
        ("ends", 0, DIED + "ended with status 0", ""),
        ("leaves", None, r"raised SystemExit in fun.py, line \d+", r"Traceback.*SystemExit: 3\n"),
        ("kills", -9, DIED + "was ended by SIGKILL", ""),
        ("kills", -9, DIED + "was ended by SIGKILL", ""),
    ):
        set_named(function)
        outcomes = run(executor, jobs(archive(ABC)))
        assert [outcome.failure is None for outcome in outcomes] == [True, False, True]
        failure = outcomes[1].failure
        assert failure is not None
        assert failure.status == status
        assert re.fullmatch(reason, failure.reason)
        assert re.fullmatch(tail, failure.tail.decode(), re.S), failure.tail
        assert b"child.py" not in failure.tail
        assert written(outcomes) == [(name, data) for name, data in ABC.items() if name[0] != "b"]


def test_output_of_a_crashed_process(start: Start, python: None) -> None:
    """The output and traceback of a process that crashes are kept, without frames of tarkit."""
    outcomes = run(start("crashes"), jobs(archive(ABC)))
    assert said(outcomes[1]).startswith("before\nFatal Python error: Segmentation")
    assert [outcome.failure is None for outcome in outcomes] == [True, False, True]
    failure = outcomes[1].failure
    assert failure is not None
    assert (failure.status, failure.reason) == (-11, DIED + "was ended by SIGSEGV")
    assert re.fullmatch(
        r".*Segmentation fault.* in function\n(\nExtension modules: .*)?", failure.tail.decode(), re.S
    ), failure.tail
    assert b"child.py" not in failure.tail


@pytest.mark.parametrize(("function", "good"), [("stays", 3), ("cut", 2)])
def test_a_process_that_does_not_end(
    function: str, good: int, start: Start, python: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with a thread that never ends, or a call without pipes, is ended after a time limit."""
    monkeypatch.setattr(functions, "PATIENCE", 0.1)
    told: list[str] = []
    executor = start(function if function == "stays" else "cut_b", tell=told.append)
    outcomes = run(executor, jobs(archive(ABC)))
    executor.close()
    assert sum(not outcome.failure for outcome in outcomes) == good
    assert told[0].endswith("did not end, and was ended after 0.1 s")


def test_output_of_the_function(start: Start) -> None:
    """The output of the function is logged with its sample, separate from results; stdin is empty."""
    outcomes = run(start("talk"), jobs(archive(ABC)))
    assert [said(outcome) for outcome in outcomes] == [f"out {key}\nerr {key}\nraw {key}\nno end" for key in "abc"]
    assert written(outcomes) == [(f"{key}.in", b"|") for key in "abc"]


def test_a_function_that_prints_too_much(start: Start) -> None:
    """A megabyte of output is kept, with a note that there was more."""
    [outcome, *_] = run(start("loud"), jobs(archive(ABC)))
    assert said(outcome) == "x" * (1 << 20) + f"\n... {3_000_001 - (1 << 20)} bytes more\n"


@pytest.mark.forks
def test_a_function_that_forks(start: Start) -> None:
    """The forked child does not return a second result."""
    outcomes = run(start("forks"), jobs(archive(ABC)))
    assert written(outcomes)[2:3] == [("b.txt", b"parent")]
    assert reasons(outcomes) == [""] * 3


def test_init_is_called_once(start: Start) -> None:
    """--init is called once, before the first sample, in a process that lasts to the end."""
    executor = start("count", init="fun.py:load")
    first = run(executor, jobs(archive(ABC)))
    second = run(executor, jobs(archive(ABC)))
    assert said(first[0]) == "loading\n"
    assert [said(outcome) for outcome in (*first[1:], *second)] == [""] * 5
    assert len({data for _, data in written(first) + written(second)}) == 1
    assert written(first)[0][1].startswith(b"1 ")


def test_items_of_a_batch(start: Start) -> None:
    """An item of a batch may be anything that a call may return; a bad one is the failure of its sample."""
    executor = start("named", batch=3)
    set_named("lazy")
    keys = [[sample.key for sample in outcome.samples] for outcome in run(executor, jobs(archive(ABC)))]
    assert keys == [[b"a", b"a2"], [], [b"c", b"c2"]]
    set_named("one_bad")
    bad = "returned an int, not a dict, several dicts or None"
    assert reasons(run(executor, jobs(archive(ABC)))) == ["", bad, ""]


def test_a_batch_that_fails(start: Start) -> None:
    """A failed batch is one failure, for the engine to halve; the executor can be used again."""
    more = "def same_key(l): return l[0]\ndef short(l): return l[:1]\ndef long(l): return l * 2\ndef none(l): pass\n"
    with open("fun.py", "a") as file:
        file.write(more)
    executor = start("named", batch=3)
    for function, reason in (
        ("poison", "raised ValueError in fun.py, line "),
        ("kill_batch", "the process that calls the function ended with status 7"),
        ("kill_batch", "the process that calls the function ended with status 7"),
        ("same_key", "returned a dict for a batch, not a list"),
        ("short", "returned 1 items for a batch of 3"),
        ("long", "returned more items than the batch of 3 has"),
        ("none", "returned None for a batch, not a list"),
    ):
        set_named(function)
        with pytest.raises(WorkFailed) as raised:
            executor.run(jobs(archive(ABC)))
        assert raised.value.failure.reason.startswith(reason)
    set_named("poison")
    assert run(executor, jobs(archive(ABC))[:1])[0].failure is None


@each_row(
    ("spec", "said"),
    [
        ("nofile.py:f", "--map: .*/nofile.py: no such file"),
        ("nomodule:f", "--map: no module nomodule in the current directory or on Python's path"),
        ("nopackage.sub:f", "--map: no module nopackage in the current directory or on Python's path"),
        ("fun.py:nothere", "--map: fun.py has no nothere"),
        ("fun:Space.nothere", "--map: fun has no Space.nothere"),
        ("fun.py:number", "--map: fun.py:number is an int, not a function"),
        ("syntax.py:f", "--map: syntax.py cannot be imported: SyntaxError in syntax.py, line 2: .*"),
        ("needs.py:f", "--map: needs.py cannot be imported: ModuleNotFoundError in needs.py, line 1: .* 'nope'"),
        ("needs:f", "--map: needs cannot be imported: ModuleNotFoundError in needs.py, line 1: .* 'nope'"),
        ("exits.py:f", "--map: exits.py cannot be imported: SystemExit in exits.py, line 1: 3"),
        ("dies.py:f", "--map dies.py:f: the process ended with status 4 before it had loaded the function: so long"),
    ],
)
def test_import_errors(spec: str, said: str, start: Start, tmp_path: Path) -> None:
    """An import error is one line, before there is any output."""
    (tmp_path / "syntax.py").write_text("x = 1\nf(\n")
    (tmp_path / "needs.py").write_text("import nope\n")
    (tmp_path / "exits.py").write_text("import sys; sys.exit(3)\n")
    (tmp_path / "dies.py").write_text("import os; print('so long', flush=True); os._exit(4)\n")
    with pytest.raises(TarkitError) as raised, CallFunction(function=spec).pool(Run()):
        pass
    assert re.fullmatch(said, str(raised.value)), raised.value
    assert "\n" not in str(raised.value)


@each_row("spec", ["fun", "fun.py", ":f", "fun:", "fun:a b", "fun:f()", "fun:a..b"])
def test_invalid_names_of_functions(spec: str) -> None:
    """An invalid name of a function is reported before anything is started."""
    with pytest.raises(TarkitError, match="is not the name of a function"):
        CallFunction(function=spec)
    with pytest.raises(TarkitError, match="is not the name of a function"):
        CallFunction(function="fun:f", init=spec)


def test_init_that_fails(start: Start) -> None:
    """A failure of --init is an error, as a failed import is."""
    said = r"--map: fun.py:fails raised TypeError: fails\(\) missing 1 required"
    step = CallFunction(function="fun.py:same", init="fun.py:fails")
    with pytest.raises(TarkitError, match=said), step.pool(Run()):
        pass


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_process_that_is_killed_while_it_loads(retries: int, start: Start, tmp_path: Path) -> None:
    """It is replaced as often as a sample is tried again."""
    (tmp_path / "twice.py").write_text(
        "import os\n"
        "with open('loads', 'a') as file: file.write('x')\n"
        "if os.path.getsize('loads') < 3: os.kill(os.getpid(), 9)\n"
        "def same(s): return s\n"
    )
    executor = start("twice.py:same", retries=retries)
    if retries == 2:
        assert reasons(run(executor, jobs(archive(ABC)))) == [""] * 3
    else:
        with pytest.raises(TarkitError, match="was ended by SIGKILL before it had loaded the function"):
            executor.load()
    assert os.path.getsize("loads") == 1 + retries


def test_modules_beside_the_file(start: Start, python: None, tmp_path: Path) -> None:
    """FILE.py can import modules beside it, even with the name of a library."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "helper.py").write_text("word = 'helped'\n")
    (there / "json.py").write_text("import helper\ndef f(s): return {'txt': helper.word}\n")
    assert written(run(start("there/json.py:f"), jobs(archive(ABC))))[0] == ("a.txt", b"helped")
    assert not list(tmp_path.rglob("__pycache__"))


def test_the_place_of_a_process_is_read_while_it_is_written(tmp_path: Path) -> None:
    """The time is one that was stored, or now: another one would be a sample that took too long."""
    text = """
        import sys, time
        from mmap import mmap
        from tarkit.proc.child import IDLE, PLACE, write_place
        with open("place", "r+b") as file: place = mmap(file.fileno(), PLACE.size)
        while True:
            write_place(place, IDLE)
            write_place(place, 5, time.monotonic())
    """
    with open(tmp_path / "place", "w+b") as file:
        file.truncate(PLACE.size)
        place = mmap(file.fileno(), PLACE.size)
    write_place(place, IDLE)
    started = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], cwd=tmp_path) as writer:
        try:
            while read_place(place)[0] == IDLE:
                assert writer.poll() is None
            for _ in range(200_000):
                index, begun = read_place(place)
                assert index == IDLE or begun >= started
        finally:
            writer.kill()


def test_a_process_that_ends_between_samples(start: Start) -> None:
    """If a process ends between samples, no sample fails, and a new process continues."""
    executor = start("pid")
    first = written(run(executor, jobs(archive(ABC))))
    assert executor._process is not None
    os.kill(executor._process.program.pid, signal.SIGKILL)
    executor._process.program.wait()
    second = run(executor, jobs(archive(ABC)))
    assert reasons(second) == [""] * 3
    assert written(second) != first


def test_cancel_ends_what_runs(start: Start) -> None:
    """Cancelling from another thread ends the running call, and no new one starts."""
    import threading

    executor = start("hangs")
    timer = threading.Timer(0.2, executor.end, ["terminate"])
    timer.start()
    began = time.monotonic()
    with pytest.raises(WorkFailed, match="was cancelled"):
        executor.run(jobs(archive(ABC)))
    assert time.monotonic() - began < 20
    with pytest.raises(WorkFailed, match="was cancelled"):
        executor.run(jobs(archive(ABC)))
    timer.join()


def test_large_samples(start: Start) -> None:
    """Samples larger than pipes and buffers are sent both ways."""
    big = os.urandom(1 << 20) * 2
    outcomes = run(start("swap"), jobs(archive({"a.cls": big, "a.txt": b"x", "b.cls": b"", "b.txt": big[:-1]})))
    assert written(outcomes) == [("a.cls", b"x"), ("a.txt", big), ("b.cls", big[:-1]), ("b.txt", b"")]


def test_decoded_values(tmp_path: Path, start: Start) -> None:
    """--decode: an unchanged value keeps its bytes; a decoding error is a failure of that sample."""
    (tmp_path / "values.py").write_text(
        "def f(s):\n    s['json']['n'] += s['cls']\n    s['new.json'] = [s['txt']]\n    return s\n"
        "def g(s): return {**s, 'cls': '3'}\n"
    )
    members = {"a.cls": b"03\n", "a.json": b'{"n":1,"m":2.50}', "a.txt": "é".encode()}
    data = archive({**members, "b.cls": b"x", "b.txt": b"", "c.cls": b"1"})
    outcomes = run(start("values.py:f", decode=True), jobs(data))
    assert written(outcomes[:1]) == [
        ("a.cls", b"03\n"),
        ("a.json", b'{"n": 4, "m": 2.5}'),
        ("a.txt", "é".encode()),
        ("a.new.json", '["é"]'.encode()),
    ]
    assert reasons(outcomes)[1].startswith("field 'cls': 'x' is not an integer")
    assert reasons(outcomes)[2].startswith("raised KeyError in values.py, line 2")
    [reason] = reasons(run(start("values.py:g", decode=True), jobs(data)[:1]))
    assert reason == "field 'cls': it takes an integer, not str (int() makes one of it)"


def test_too_many_ended_processes(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that end before they begin a sample are an error after a few attempts."""
    executor = start("same")
    real = functions.FunctionProcess

    class Dying(real):  # type: ignore[valid-type,misc]
        def send(self, value: Any) -> None:
            if isinstance(value, list):
                self.program.kill()
                self.program.wait()
            super().send(value)

    executor.load()
    executor.close()
    monkeypatch.setattr(functions, "FunctionProcess", Dying)
    with pytest.raises(TarkitError, match="its process ended 3 times before it began a sample"):
        run(executor, jobs(archive(ABC)))


@settings(max_examples=30)
@given(
    mtime=strategies.sampled_from([0, 77]),
    before=strategies.dictionaries(strategies.sampled_from(FIELDS), strategies.sampled_from(CONTENTS), min_size=1),
    after=strategies.dictionaries(
        strategies.sampled_from(FIELDS), strategies.sampled_from([None, *CONTENTS]), min_size=1
    ),
    kinds=strategies.lists(strategies.sampled_from([b"0", b"\0", b"7"]), min_size=len(FIELDS), max_size=len(FIELDS)),
)
def test_the_fast_path_builds_the_same(
    mtime: int, before: dict[str, bytes], after: dict[str, bytes | None], kinds: list[bytes]
) -> None:
    """The fast path builds the same entries and bytes as the reference."""
    after = {field: None if content is None and field in before else content or b"" for field, content in after.items()}
    head = member("first.x", b"1")
    data = head + b"".join(
        member(f"d.d/k.{field}".encode("utf-8", "surrogateescape"), content, typeflag=kind, mtime=9, mode=0o600)
        for (field, content), kind in zip(before.items(), kinds, strict=False)
    )
    sample = list(SampleReader(on_disk(data + bytes(1024)), Policy()))[1]
    job, entries, base = Job(0, sample), list(map(tuple, sample.entries)), len(head)
    fields = result.plain_fields(b"d.d/k", entries, data[base:], base)
    assert fields is not None
    assert list(fields.items()) == list(before.items())
    short = result.build_plain(b"d.d/k", entries, data[base:], base, fields, list(after.items()), mtime)
    contents = [(f.encode("utf-8", "surrogateescape"), before[f] if c is None else c) for f, c in after.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result, "build_changed", lambda *arguments: None)
        made = SampleBuilder(mtime)(job, b"d.d/k", contents)
    same = SampleBuilder(mtime)(job, b"d.d/k", contents)
    assert (same.key, list(same.entries)) == (made.key, list(made.entries))
    assert same.source.read(same.start, same.stop) == made.source.read(made.start, made.stop)
    if made is sample:
        assert short is None
    else:
        assert short == (b"d.d/k", list(map(tuple, made.entries)), made.source.read(0, made.stop))


@each_row("at", [0, 3, 4, 8, 9, None])
def test_contents_are_compared_completely(at: int | None, tmp_path: Path) -> None:
    """A field equals that of the input only if all of its content does, not just the beginning."""
    [job] = jobs(archive({"a.x": b"0123456789"}))
    content = bytearray(b"0123456789")
    if at is not None:
        content[at] = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result, "COMPARED", 4)
        (tmp_path / "x").write_bytes(content)
        file = result.FileContent(os.fsencode(tmp_path / "x"), len(content), 7, None)
        made = SampleBuilder()(job, b"a", [(b"x", file)])
    assert (made is job.sample) == (at is None)
    assert written([Outcome([made])]) == [("a.x", content)]


@each_row(
    "data",
    [
        member("a.x", b"1") + member("README", b"") + member("a.y", b"1"),
        member("a.x", b"1") + member("a.y", typeflag=b"1", linkname=b"a.x"),
        member("a.x", b"1") + member("a.x", b"2"),
        member("a.y", typeflag=b"2", linkname=b"a.x"),
    ],
)
def test_samples_that_are_not_plain(data: bytes) -> None:
    """Samples with other entries, links or duplicate fields do not take the fast path."""
    [sample] = SampleReader(on_disk(data + bytes(1024)), Policy(allow=["duplicate-entry"]), moves=False)
    assert result.plain_fields(b"a", list(map(tuple, sample.entries)), data, 0) is None
