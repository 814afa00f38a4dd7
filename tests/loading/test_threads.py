"""`threads=` of a loader: the same values in the same order as without, positions, errors, and threads that end."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any

import pytest

import tarkit
from tests._tools import ROUNDS, each_row, slow

SHARDS = "s-*"


@pytest.fixture(autouse=True)
def shards(here: Path) -> None:
    """Write five shards of 0 to 9 samples, of which one is compressed."""
    for shard, count in enumerate((4, 9, 1, 0, 7)):
        with tarkit.TarWriter(f"s-{shard}.tar{'.gz' * (shard == 1)}") as writer:
            for number in range(count):
                writer.write({"__key__": f"{shard}/{number}", "cls": number, "txt": f"text {shard}"})


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Check that each test leaves the threads that there were before."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


# ---- Functions that draw random numbers of the process or of the sample: always, for some samples, or never


def plain(sample: dict[str, Any]) -> str:
    """Return the key, after some time."""
    sleep(random.SystemRandom().random() / 2000)
    return str(sample["__key__"])


def drawn(sample: dict[str, Any]) -> tuple[str, float]:
    sleep(random.SystemRandom().random() / 2000)
    return sample["__key__"], tarkit.sample_random().random()


def shared(sample: dict[str, Any]) -> tuple[str, float, float]:
    """Return a number of the process, and one of the sample."""
    return sample["__key__"], random.random(), tarkit.sample_random().random()


def rarely(sample: dict[str, Any]) -> Any:
    """Return a number of the process for some samples; change the sample."""
    sample["cls"] += 1
    return sample["__key__"], sample["cls"], random.random() if sample["cls"] % 3 == 0 else None


def several(sample: dict[str, Any]) -> Iterator[Any]:
    """Yield as many values as the class says, twice."""
    for number in range(2 * sample["cls"]):
        yield sample["__key__"], number, tarkit.sample_random().random()


def several_rarely(sample: dict[str, Any]) -> Iterator[Any]:
    """Yield some values, of which few are random numbers of the process."""
    for number in range(sample["cls"] + 6):
        yield sample["__key__"], random.random() if number == 5 and sample["cls"] % 2 else number


def some(sample: dict[str, Any]) -> Any:
    """Leave out some samples, and yield values of others, of which one is None."""
    if sample["cls"] % 3 == 1:
        return None
    return sample["__key__"] if sample["cls"] else (text for text in ("a", None, "b"))


FUNCTIONS = [None, plain, drawn, shared, rarely, several, several_rarely, some]


def draw_options(draw: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"decode": True, "seed": draw.randrange(9), "transform": draw.choice(FUNCTIONS)}
    options["shuffle"] = draw.choice((0, 0, 3, 100, "full"))
    options["batch"] = draw.choice((None, None, 2, 5))
    options["epochs"] = draw.choice((1, 2, None))
    options["where"] = draw.choice((None, None, "cls != 2"))
    if options["shuffle"] != "full":
        options["interleave"] = draw.choice((1, 2))
        if draw.random() < 0.3:
            options |= {"resample": draw.random() < 0.5, "length": draw.randrange(1, 40)}
    if "length" not in options and options["where"] is None and draw.random() < 0.3:
        options["equal"] = draw.choice(("drop", "repeat"))
    return options


def draw_inputs(draw: random.Random, options: dict[str, Any]) -> Any:
    plain = ["s-0.tar", "s-2.tar", "s-4.tar"] if options["shuffle"] == "full" else SHARDS
    kind = draw.choice(("archives", "archives", "mix", "join", "map", "view"))
    if kind == "mix":
        first, second = tarkit.open(plain), tarkit.open("s-0.tar")
        return tarkit.mix([(first, 3), (second, 1)], until="all", repeat=True)
    if kind == "view" and options["shuffle"] != "full":
        pytest.importorskip("pyarrow")
        tarkit.open("s-?.tar").write("all.view.parquet")
        return "all.view.parquet"
    if kind == "map" and options.get("equal") is None:
        return tarkit.open(plain).map(lambda sample: {**sample, "cls": b"%d" % (int(sample["cls"]) % 4)})
    if kind == "join" and options.get("equal") is None:
        with open("more.csv", "w") as table:
            table.write("__key__,more\n" + "".join(f"{shard}/{n},{n}\n" for shard in range(5) for n in range(9)))
        return tarkit.open(plain).join("more.csv").set("txt:more")
    return plain


def texts(values: Any) -> list[str]:
    return [repr(value) for value in islice(values, 150)]


@pytest.mark.parametrize("seed", [*range(10), *map(slow, range(10, 60 * ROUNDS))])
def test_the_same_as_without(seed: int) -> None:
    """Values, their order and the epochs; also where other numbers of threads continue, in the middle."""
    draw = random.Random(seed)
    options = draw_options(draw)
    inputs = draw_inputs(draw, options)
    alone = tarkit.loader(inputs, **options)
    whole = texts(alone)
    loader = tarkit.loader(inputs, **options, threads=draw.randint(1, 4))
    assert texts(loader) == whole
    given: list[str] = []
    state = tarkit.loader(inputs, **options).state_dict()
    for stop in sorted(draw.randrange(len(whole) + 1) for _ in range(3)):
        loader = tarkit.loader(inputs, **options, threads=draw.randint(0, 4))
        loader.load_state_dict(state)
        values = iter(loader)
        given += texts(islice(values, stop - len(given)))
        state = loader.state_dict()
        values.close()  # type: ignore[attr-defined]
        assert loader.state_dict() == state
        assert given == whole[: len(given)]
    loader = tarkit.loader(inputs, **options, threads=2)
    loader.load_state_dict(state)
    given += texts(loader)
    assert given[:150] == whole


def test_large_samples() -> None:
    """Samples that are read when their turn comes stay readable: those of files, and of streams."""
    for name in ("large-0.tar", "large-1.tar.gz"):
        with tarkit.TarWriter(name) as writer:
            for number in range(9):
                writer.write({"__key__": f"{name}/{number}", "bin": bytes([number]) * 1_500_000, "cls": number})

    def look(sample: dict[str, Any]) -> Any:
        assert sample["bin"] == bytes([int(sample["cls"])]) * 1_500_000
        return sample["__key__"]

    for options in ({}, {"interleave": 2}, {"shuffle": 4}):
        whole = list(tarkit.loader("large-*", transform=look, **options))  # type: ignore[arg-type]
        for threads in (1, 4):
            loader = tarkit.loader("large-*", transform=look, threads=threads, **options)  # type: ignore[arg-type]
            assert list(loader) == whole
            loader.set_epoch(0)
            begun = iter(loader)
            given = list(islice(begun, 5))
            state = loader.state_dict()
            loader.load_state_dict(state)
            assert [*given, *loader] == whole


def test_divided_anew() -> None:
    """Positions of workers with threads are divided among others: each sample comes once."""
    for options in ({"shuffle": 3}, {"shuffle": "full"}, {"interleave": 2, "batch": 2}):
        inputs = ["s-0.tar", "s-4.tar"] if options.get("shuffle") == "full" else SHARDS
        workers = [tarkit.loader(inputs, **options, threads=2, worker=w, workers=2) for w in range(2)]  # type: ignore[arg-type]
        batched = "batch" in options
        given = [value for worker in workers for value in islice(worker, 2)]
        others = [tarkit.loader(inputs, **options, threads=3, worker=w, workers=3, allow_idle=True) for w in range(3)]  # type: ignore[arg-type]
        for other in others:
            other.load_state_dict([worker.state_dict() for worker in workers])
            given += other
        keys = [key for value in given for key in (value["__key__"] if batched else [value["__key__"]])]
        assert sorted(keys) == sorted(sample.key for sample in tarkit.open(inputs))


@pytest.mark.slow
def test_random_numbers_that_others_draw() -> None:
    """Values are the same while the program draws random numbers of the process."""
    data = tarkit.loader(SHARDS, decode=True, transform=rarely, epochs=8)
    busy = tarkit.loader(SHARDS, decode=True, transform=rarely, epochs=8, threads=3)
    found = []
    for value in busy:
        found.append(value)
        random.random()
    assert found == list(data)
    ended = threading.Event()

    def draw() -> None:
        while not ended.is_set():
            random.random()

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        calm = list(tarkit.loader(SHARDS, decode=True, transform=drawn, epochs=5, threads=3))
    finally:
        ended.set()
        thread.join()
    assert calm == list(tarkit.loader(SHARDS, decode=True, transform=drawn, epochs=5))


@each_row("library", ["numpy", "torch"])
def test_random_numbers_of_libraries(library: str) -> None:
    """A function that draws from them for some samples gives the same numbers."""
    module = pytest.importorskip(library)

    def function(sample: dict[str, Any]) -> Any:
        if sample["cls"] < 3:
            return sample["cls"]
        return float(module.random.rand() if library == "numpy" else module.rand(()))

    options: dict[str, Any] = {"decode": True, "transform": function, "epochs": 3}
    assert list(tarkit.loader(SHARDS, **options, threads=3)) == list(tarkit.loader(SHARDS, **options))


# ---- Errors


def fail(sample: dict[str, Any]) -> Any:
    """Raise an error for one sample, after some time for the others."""
    if sample["__key__"] == "1/5":
        raise ValueError("no")
    sleep(0.001)
    return sample["__key__"]


def fail_later(sample: dict[str, Any]) -> Iterator[Any]:
    """Raise an error within the values of one sample."""
    for number in range(12):
        if sample["__key__"] == "1/5" and number in (3, 11):
            raise ValueError("no")
        yield sample["__key__"], number


def interrupt(sample: dict[str, Any]) -> Any:
    """Raise an exception that is no error."""
    if sample["__key__"] == "1/5":
        raise KeyboardInterrupt("no")
    return sample["__key__"]


def stop(sample: dict[str, Any]) -> Any:
    """Raise what ends iterators."""
    if sample["__key__"] == "1/5":
        raise StopIteration("no")
    return sample["__key__"]


def fail_on_batch(items: list[Any]) -> Any:
    """Raise an error for a batch with one sample."""
    return [fail(item) for item in items]


def decode_or_fail(data: bytes) -> Any:
    """Decode a class, or raise an error."""
    if data == b"5":
        raise ValueError("no")
    return int(data)


def outcome(inputs: Any, **options: Any) -> tuple[Any, ...]:
    """Return what a loader gives, its error with the functions of its traceback, and what comes after a resume."""
    loader = tarkit.loader(inputs, shuffle_shards=False, **options)
    given: list[Any] = []
    error: BaseException | None = None
    try:
        given.extend(loader)
    except (Exception, KeyboardInterrupt) as raised:
        error = raised
    assert error is not None
    functions = [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
    again = tarkit.loader(
        inputs, shuffle_shards=False, **{**options, "transform": None, "decode": None, "collate": None}
    )
    again.load_state_dict(loader.state_dict())
    notes = getattr(error, "__notes__", None)
    return given, type(error), str(error), notes, functions, [repr(sample) for sample in again]


@each_row(
    "options",
    [
        *(
            {"transform": function, "batch": batch}
            for function in (fail, fail_later, interrupt, stop)
            for batch in (None, 3)
        ),
        {"decode": {"cls": decode_or_fail}},
        {"decode": {"cls": decode_or_fail}, "shuffle": 3, "batch": 2},
        {"decode": True, "transform": lambda sample: len(sample["cls"])},
        {"collate": fail_on_batch, "batch": 3},
    ],
)
def test_an_error(options: dict[str, Any]) -> None:
    """It comes at its sample, with its class, words, notes and traceback, and the sample comes again."""
    without = outcome(SHARDS, **options)
    for threads in (1, 3):
        assert outcome(SHARDS, **options, threads=threads) == without


def test_damage() -> None:
    """An error of reading comes behind the samples before it; the policy decides in the order of the samples."""
    os.truncate("s-4.tar", 7 * 1024 + 100)
    given: list[Any] = []
    with pytest.raises(tarkit.Problem, match=r"s-4\.tar") as caught:
        given.extend(tarkit.loader("s-4.tar", transform=plain, threads=3))
    assert (len(given), caught.value.name) == (3, "truncated")
    messages: list[tuple[str, ...]] = []
    for threads in (0, 3):
        found: list[str] = []
        data = tarkit.open(SHARDS, skip=["truncated", "bad-field"], on_problem=found.append)
        loader = tarkit.loader(data, decode={"cls": decode_or_fail}, threads=threads, shuffle_shards=False)
        messages.append((*(sample["__key__"] for sample in loader), *sorted(found)))
    assert messages[0] == messages[1]


# ---- The end of an iteration, at any time


@each_row("leave", [lambda values: values.close(), lambda values: None])
def test_an_early_end(leave: Callable[[Any], None]) -> None:
    """Threads end with `close`, and with the last reference, whatever they do then."""
    before = threading.active_count()
    for count in (0, 1, 5):
        for transform in (plain, several, None):
            values = iter(tarkit.loader(SHARDS, decode=True, transform=transform, threads=3, epochs=None, batch=4))
            taken = list(islice(values, count))
            leave(values)
            del values
            assert len(taken) == count
            assert threading.active_count() == before


def test_a_bound_of_samples() -> None:
    """Two samples for each thread, and those of a batch, are made before they are taken."""
    made: list[str] = []

    def note(sample: dict[str, Any]) -> Any:
        made.append(sample["__key__"])
        return sample["__key__"]

    values = iter(tarkit.loader(SHARDS, decode=True, transform=note, threads=2, epochs=None, batch=3))
    for number in range(1, 9):
        next(values)
        sleep(0.05)
        assert len(made) <= 3 * number + 3 + 4
    values.close()  # type: ignore[attr-defined]


PROGRAM = """
import os, signal, sys, threading, time
import tarkit

def slow(sample):
    time.sleep(0.01)
    return sample["__key__"]

values = iter(tarkit.loader("s-*", transform=slow, threads=3, epochs=None))
next(values)
"""

ENDS = {
    "the program ends": "",
    "the program ends in a cycle": "cycle = [values]; cycle.append(cycle)",
    "an error": "raise SystemExit(0)",
    "a break": """
for value in values:
    break
del values, value
assert threading.active_count() == 1
""",
    "interrupted": """
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    for value in values:
        pass
except KeyboardInterrupt:
    pass
time.sleep(0.2)
assert threading.active_count() == 1, threading.enumerate()
""",
    "a copy ends": """
if os.fork() == 0:
    del values
    sys.exit()
assert os.wait()[1] == 0
next(values)
""",
    "a copy that goes on": """
if os.fork() == 0:
    try:
        list(values)
    except tarkit.Unsupported:
        sys.exit()
assert os.wait()[1] == 0
next(values)
""",
    "a copy that begins": """
if os.fork() == 0:
    assert len(list(tarkit.loader("s-*", transform=slow, threads=2))) == 21
    sys.exit()
assert os.wait()[1] == 0
next(values)
""",
    "copies afterwards": """
values.close()
for _ in range(3):
    if os.fork() == 0:
        assert len(list(tarkit.loader("s-*", transform=slow, threads=2))) == 21
        sys.exit()
    assert os.wait()[1] == 0
""",
    "another thread": """
thread = threading.Thread(target=lambda: [next(values) for _ in range(9)])
thread.start()
thread.join()
values.close()
assert threading.active_count() == 1
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("lines", ENDS.values(), ids=list(ENDS))
def test_the_end_of_a_program(lines: str) -> None:
    """It ends in time, and prints nothing."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", PROGRAM + lines],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@each_row(("threads", "error"), [(-1, "at least 0"), ("2", "threads"), (1.5, "threads"), (True, "threads")])
def test_usage(threads: Any, error: str) -> None:
    """The number of threads is a whole number."""
    with pytest.raises((tarkit.Usage, TypeError), match=error):
        tarkit.loader(SHARDS, threads=threads)
    with pytest.raises(TypeError, match="threads"):
        tarkit.loader(SHARDS, num_threads=2)  # type: ignore[call-arg]
