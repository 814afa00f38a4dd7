"""tarkit proc --map and --worker from the command line, to the byte, for any -p."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest

import tarkit
from tarkit.proc import program as programs
from tests._copies import Popen
from tests._tools import each_row, process
from tests.commands.test_proc_failures import copies as copies
from tests.conftest import Archive, Content, Feed, Run, entries, tar

MANY: dict[str, Content] = {
    f"d/{number:05}.{field}": f"{number} {field}".encode() for number in range(60) for field in ("cls", "txt")
}
ABC: dict[str, Content] = {f"{key}.{field}": f"{key}{field}".encode() for key in "abc" for field in ("cls", "txt")}

FUNCTIONS = """
    import os, sys, time

    def same(s): return s
    def upper(s):
        s["txt"] = s["txt"].upper()
        return s
    def many(s):
        for n in range(int(s["__key__"][-1]) % 3):
            yield {"__key__": f"{s['__key__']}-{n}", **{f: v for f, v in s.items() if f != "__key__"}}
    def fails(s):
        if int(s["__key__"][-5:]) % 20 == 7:
            raise ValueError("a seven")
        return s
    def dies(s):
        if s["__key__"] == "d/00027": os.kill(os.getpid(), 9)
        return s
    def talks(s): print("hello from", s["__key__"]); return s
    def one_key(s): return {"__key__": "x/" + s["__key__"][-1], "txt": s["txt"]}
    def sleeps(s): open("begun" + s["__key__"], "w").close(); time.sleep(60)
    def batch(l):
        if any(s["__key__"].endswith("7") for s in l): raise ValueError(len(l))
        return [{**s, "n": str(len(l))} for s in l]
    def picture(s): return {"png": 3}
    def array(s): return {"npy": 3}
"""


@pytest.fixture(autouse=True)
def functions(here: Path) -> None:
    """Write a module to the directory of the test."""
    (here / "fun.py").write_text(textwrap.dedent(FUNCTIONS))


def test_from_everywhere(run: Run, archive: Archive, feeds: list[Feed]) -> None:
    """Files, pipes and compressed files have the same results; unchanged samples are kept to the byte."""
    upper = [(name, data.upper() if "txt" in name else data) for name, data in MANY.items()]
    word = archive(MANY)
    for feed in feeds:
        assert run("proc", "--map", "fun.py:same", feed(word)).stdout == tar(MANY)
        assert run("proc", "--worker", "cat", feed(word)).stdout == tar(MANY)
    assert run("proc", "--map", "fun:upper", word, "-o", "out.tar").stdout == b""
    assert entries(Path("out.tar")) == upper


def test_as_users_have_it(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python is started for --map as for users, and loads its modules itself."""
    monkeypatch.setattr(subprocess, "Popen", Popen)
    assert run("proc", "-p", "2", "--map", "fun.py:same", archive(MANY)).stdout == tar(MANY)
    assert sorted(os.listdir()) == ["fun.py", "in.tar"]


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (("--map", "fun.py:upper"), "1 4"),
        (("--map", "fun.py:many"), "1 2"),
        (("--map", "fun.py:fails", "--on-error", "skip"), "1 3"),
        (("--map", "fun.py:dies", "--on-error", "keep"), "1 2"),
        (("--map", "fun.py:batch", "--batch", "16", "--on-error", "skip"), "1 2"),
        (("--worker", "tar -f - --delete --wildcards '*[02468].*' '*.txt'"), "1 4 16"),
        (("--worker", "cat > $$; ! grep -q 00023 $$ && cat $$", "--on-error", "skip"), "1 2"),
    ],
)
def test_the_same_for_every_number_of_processes(
    words: tuple[str, ...], numbers: str, run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output is the same with failures; for a function, warnings are in the same order."""
    monkeypatch.setattr(programs, "TOGETHER", 3)
    monkeypatch.setattr("tarkit.proc.function.TOGETHER", 3)
    word = archive(MANY)
    first, *others = (run("proc", *words, "-p", number, word) for number in numbers.split())
    assert entries(first.stdout)
    for other in others:
        assert first.stdout == other.stdout
        assert first.stderr == other.stderr or words[0] == "--worker"


def test_batches_are_halved(run: Run, archive: Archive) -> None:
    """Batches are halved until the failing sample is alone; all others are processed."""
    ran = run("proc", "--map", "fun.py:batch", "--batch", "8", "--on-error", "skip", archive(MANY), "-p", "2")
    out = {name for name, _ in entries(ran.stdout)}
    assert {name for name in MANY if name.partition(".")[0][-1] != "7"} == {name for name in out if name[-1] != "n"}


def test_a_function_that_prints(run: Run, archive: Archive) -> None:
    """stdout has data only; output of the function goes to stderr in order."""
    ran = run("proc", "-p", "3", "--map", "fun.py:talks", archive(ABC))
    assert ran.stdout == tar(ABC)
    assert ran.lines == [f"hello from {key}" for key in "abc"]


def test_a_key_twice(run: Run, archive: Archive) -> None:
    """Results with the key of another sample are repeated keys."""
    lines = run("proc", "--map", "fun.py:one_key", archive(MANY), "-o", "out.tar", exit=1).lines
    assert lines[0] == "tarkit: in.tar: 'd/00010' gave the key 'x/0', which was given before [scattered-sample]"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--map", "fun.py:nothing"), "tarkit: --map: fun.py has no nothing"),
        (("--map", "none:f"), "tarkit: --map: no module none in the current directory or on Python's path"),
        (("--map", "fun.py"), "tarkit: 'fun.py' is not the name of a function"),
    ],
)
def test_errors_before_any_output(words: tuple[str, ...], line: str, run: Run, archive: Archive) -> None:
    """Errors are reported before the output is opened: a command for it does not run."""
    for output in ("out.tar", "pipe:touch begun; cat > out.tar"):
        assert run("proc", *words, archive(ABC), "-o", output, exit=1).lines[0] == line
        assert not Path("out.tar").exists()
        assert not Path("begun").exists()


def test_samples_without_fields(here: Path) -> None:
    """A sample that is a key alone cannot be sent to a program."""
    Path("keys.txt").write_text("a\nb/c\n")
    with pytest.raises(tarkit.TarkitError, match=r"keys.txt: 'a' has no field to send"):
        list(tarkit.open("keys.txt", mode="keys").worker("cat"))


def test_a_signal_ends_all(archive: Archive, here: Path) -> None:
    """No process, output or directory is left."""
    for words, count in ((("--map", "fun.py:sleeps"), 2), (("--worker", "touch begun; sleep 60"), 1)):
        started = process("proc", "-p", "2", *words, archive(ABC), "-o", "out.tar", stderr=subprocess.PIPE)
        while len(begun := [*here.glob("begun*")]) < count:
            assert started.poll() is None
            time.sleep(0.005)
        family: list[str] = []
        for thread in Path(f"/proc/{started.pid}/task").iterdir():
            with suppress(FileNotFoundError):  # it has ended, and has no children
                family += (thread / "children").read_text().split()
        assert len(family) >= count
        started.send_signal(signal.SIGTERM)
        _, said = started.communicate(timeout=20)
        assert (started.returncode, said) == (-signal.SIGTERM, b"")
        for pid in family:
            with pytest.raises(ProcessLookupError):
                os.kill(int(pid), 0)
        for path in begun:
            path.unlink()
    assert sorted(path.name for path in here.iterdir()) == ["fun.py", "in.tar"]


def test_a_program_that_dies(run: Run, archive: Archive) -> None:
    """The message has pending samples, and there is no output."""
    lines = run("proc", "--worker", "head -c 4200; kill -9 $$", archive(ABC), "-o", "out.tar", exit=1).lines
    assert lines == [
        "tarkit: --worker head -c 4200; kill -9 $$: the program was ended by SIGKILL; pending samples: 'a', 'b', 'c'"
    ]
    assert not Path("out.tar").exists()


# ---- the examples of the README


def test_filters_and_augmentation(run: Run, archive: Archive, here: Path) -> None:
    """webdataset's example of a filter is a function of ten lines, whose output webdataset reads."""
    Image, wds = pytest.importorskip("PIL.Image"), pytest.importorskip("webdataset")
    (here / "aug.py").write_text(AUGMENT)
    members: dict[str, Content] = {}
    for number, key in enumerate(("e398", "f18b", "ede6")):
        Image.linear_gradient("L").convert("RGB").resize((100, 80)).rotate(number).save("x.jpg")
        members[f"{key}.jpg"] = Path("x.jpg").read_bytes()
        members[f"{key}.json"] = json.dumps({"annotations": [{"category_id": number}]}).encode()
    word = archive(members)
    run("proc", "-p", "2", "--decode", "--map", "aug.py:augment", word, "-o", "augmented.tar")
    names = [name for name, _ in entries(Path("augmented.tar"))]
    assert names == [f"{key}.{field}" for key in ("e398", "f18b", "ede6") for field in ("cls", "png")]
    source = wds.DataPipeline(wds.SimpleShardList("augmented.tar"), wds.tarfile_to_samples(), wds.decode("rgb8"))
    found = [(sample["__key__"], sample["png"].shape, sample["cls"]) for sample in source]
    assert found == [("e398", (64, 64, 3), 0), ("f18b", (64, 64, 3), 1), ("ede6", (64, 64, 3), 2)]


PILLOW, NUMPY = ("PIL.Image", "Pillow", "images"), ("numpy", "numpy", "numpy")


@each_row(
    ("library", "field", "words", "what"),
    [
        (PILLOW, "jpg", "fun.py:same", "--decode of pictures"),
        (PILLOW, "jpg", "fun.py:same --on-error skip", "--decode of pictures"),
        (PILLOW, "jpg", "fun.py:same --rejects r.tar -p 2", "--decode of pictures"),
        (PILLOW, "jpg", "fun.py:batch --batch 2", "--decode of pictures"),
        (PILLOW, "cls", "fun.py:picture --on-error keep -f cls", "to encode pictures"),
        (NUMPY, "npy", "fun.py:same --on-error skip", "--decode of arrays"),
        (NUMPY, "cls", "fun.py:array", "to encode arrays"),
    ],
)
def test_a_library_that_is_missing(
    library: tuple[str, str, str],
    field: str,
    words: str,
    what: str,
    run: Run,
    archive: Archive,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing library ends the run with any policy for failures; the hint installs it."""
    module, package, extra = library
    Path("fun.py").write_text(textwrap.dedent(FUNCTIONS))
    monkeypatch.setitem(sys.modules, module, None)
    name = archive({"a.cls": b"1", f"b.{field}": b"2", "c.cls": b"3"})
    ran = run("proc", "--decode", "--map", *words.split(), name, "-o", "out.tar", exit=1)
    assert ran.lines[-2:] == [
        f"tarkit: --map: {what} needs {package}, which is not installed",
        f"hint: pip install 'tarkit[{extra}]'",
    ]
    assert not {"out.tar", "r.tar"} & set(os.listdir())


AUGMENT = """
import numpy as np

def augment(sample):
    image = next(sample[name] for name in ("jpg", "png") if name in sample)
    pixels = np.asarray(image.convert("RGB").resize((64, 64)), dtype=np.float32)
    pixels -= pixels.min()
    pixels /= max(pixels.max(), 1)
    label = sample["json"]["annotations"][0]["category_id"]
    return {"__key__": sample["__key__"], "png": pixels, "cls": label}
"""
