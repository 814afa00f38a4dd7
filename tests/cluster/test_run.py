"""Sort and shuffle by passes of tasks: the bytes of one machine, or an error."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tarkit
from tarkit.cluster.merge import compare_keys, order_span
from tarkit.cluster.plan import TaskDivision
from tarkit.cluster.scan import scan_inputs
from tarkit.cluster.scatter import scatter_group
from tarkit.cluster.write import write_samples
from tarkit.errors import Problem, TarkitError, Usage
from tarkit.parallel import in_order
from tarkit.pipeline import view_index
from tarkit.pipeline.run import Run
from tarkit.shards.limits import Limits
from tests._tools import each_row
from tests.cluster._tools import SMALL, Between, contents, inputs, task_of, write_by_tasks
from tests.conftest import tar

Dataset = tarkit.Dataset

ORDERS: dict[str, Callable[[Dataset], Dataset]] = {
    "shuffle": lambda data: data.shuffle(7),
    "shuffle of another epoch": lambda data: data.shuffle(7, epoch=3),
    "key": lambda data: data.sort(),
    "key, descending": lambda data: data.sort(reverse=True),
    "natural": lambda data: data.sort(type="natural"),
    "numbers": lambda data: data.sort("cls", "int"),
    "numbers, descending": lambda data: data.sort("cls", "float", reverse=True),
    "size": lambda data: data.sort(["size.jpg", "cls"]),
}
LIMITS = [
    Limits(count=4),
    Limits(count=1),
    Limits(count=1000),
    Limits(size=20480),
    Limits(size=512),
    Limits(size=9000, rule="content"),
    Limits(count=3, size=20480),
]


class Written(NamedTuple):
    """Shards: the bytes of each, and their figures: samples, size, first and last key."""

    files: dict[str, bytes]
    figures: list[tuple[int, int, bytes, bytes]]


def written_here(data: Dataset, limits: Limits | None = None) -> Written:
    """Write an archive, or shards, as on one machine."""
    _remove("a*.tar")
    if limits is None:
        data.write("a.tar")
        return _written("a", [])
    return _written("a", data.split("a-%03d.tar", count=limits.count, size=limits.size, size_rule=limits.rule))


def written_by_tasks(data: Dataset, limits: Limits | None = None, **how: Any) -> Written:
    _remove("b*.tar")
    if limits is None:
        write_by_tasks(data, "b.tar", **how)
        return _written("b", [])
    return _written("b", write_by_tasks(data, "b-%03d.tar", limits, **how).shards)


def _remove(pattern: str) -> None:
    for path in Path().glob(pattern):
        path.unlink()


def _written(letter: str, shards: Sequence[tarkit.Shard]) -> Written:
    return Written(contents(f"{letter}*.tar"), [(each.samples, each.size, each.first, each.last) for each in shards])


@each_row("name", ORDERS)
def test_the_bytes_of_one_archive(here: Path, name: str) -> None:
    inputs(12)
    data = ORDERS[name](tarkit.open("in-*.tar"))
    data.write("a.tar")
    found = write_by_tasks(data, "b.tar")
    assert Path("a.tar").read_bytes() == Path("b.tar").read_bytes()
    tasks = {name: count for name, count, _ in found.passes}
    assert tasks["scan"] == 4
    assert min(tasks["scatter"], tasks["order"], tasks["write"]) > 3


class _Watched(Run):
    """A run that records the name of each pass that shows progress, and the numbers at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, int, int, int | None]] = []

    def draw(self, doing: str, items: Any, position: Any, samples: Any, total: int | None = None) -> Any:
        yield from items
        self.seen.append((doing, position(), samples(), total))


def test_passes_show_progress(here: Path) -> None:
    """Each pass has a name, and ends with the samples and bytes of all inputs."""
    inputs(8)
    run, data = _Watched(), tarkit.open("in-*.tar").sort("cls")
    write_by_tasks(data, "b.tar", run=run)
    assert [doing for doing, *_ in run.seen] == ["scanning", "scattering", "ordering", "writing"]
    (_, size, samples, _), *others = run.seen
    assert samples == sum(1 for _ in tarkit.open("in-*.tar"))
    assert [numbers for _, *numbers in others] == [[size, samples, size]] * 3


@pytest.mark.slow
@each_row("suffix", ["tar", "tar.gz", "tar.zst", "cbors", "zip"])
def test_compressed_and_other_outputs_and_inputs(here: Path, suffix: str) -> None:
    inputs(6)
    for path in sorted(Path().glob("in-*.tar")):
        tarkit.open(os.fspath(path)).write(f"x{path.stem}.{suffix}")
    data = tarkit.open(f"xin-*.{suffix}").shuffle(5)
    data.write(f"a.{suffix}")
    write_by_tasks(data, f"b.{suffix}")
    assert Path(f"a.{suffix}").read_bytes() == Path(f"b.{suffix}").read_bytes()
    data.split(f"a-%d.{suffix}", count=5)
    write_by_tasks(data, f"b-%d.{suffix}", Limits(count=5))
    assert contents(f"a-*.{suffix}") == contents(f"b-*.{suffix}")


@pytest.mark.slow
def test_samples_larger_than_memory_and_than_one_read(here: Path) -> None:
    draw = random.Random(1)
    for number in range(3):
        sizes = [(f"{number}{at}.bin", draw.randbytes(draw.choice([9, 700_000, 5_000_000]))) for at in range(5)]
        Path(f"in-{number}.tar").write_bytes(tar(dict(sizes)))
    data = tarkit.open("in-*.tar").shuffle(2)
    limits = Limits(size=6_000_000)
    assert written_by_tasks(data, limits, division=TaskDivision(4_000_000, 4)) == written_here(data, limits)


def test_an_archive_without_samples(here: Path) -> None:
    Path("in-0.tar").write_bytes(tar({"README": b"x"}))
    Path("in-1.tar").write_bytes(tar({}))
    data = tarkit.open("in-*.tar").shuffle(1)
    assert written_by_tasks(data) == written_here(data)
    assert write_by_tasks(data, "b.tar").samples == 0
    assert write_by_tasks(tarkit.open("in-1.tar").shuffle(1), "c-%d.tar", Limits(count=1)).shards == []
    assert not [*Path().glob("c-*")]


# ---- Keys


def test_samples_of_two_inputs_are_joined(here: Path) -> None:
    draw = random.Random(3)
    for part in ("jpg", "cls", "txt"):
        for number in range(3):
            keys = [f"{number}{at}" for at in range(6)]
            draw.shuffle(keys)
            Path(f"{part}-{number}.tar").write_bytes(tar({f"{key}.{part}": key.encode() * 500 for key in keys[:5]}))
    for limits in (Limits(count=2), Limits(size=20480)):
        data = tarkit.open("???-*.tar", allow="joined-sample").sort()
        written = written_by_tasks(data, limits, division=TaskDivision(5000, 4))
        assert written == written_here(data, limits)
        assert sum(samples for samples, *_ in written.figures) == 18


@each_row("name", ["key", "numbers", "shuffle"])
def test_keys_of_two_inputs(here: Path, name: str) -> None:
    """What is an error on one machine is one here, with the same name."""
    for number in range(4):
        Path(f"in-{number}.tar").write_bytes(tar({f"{key}.cls": b"%d" % number for key in (number, number + 1)}))
    data, problems = ORDERS[name](tarkit.open("in-*.tar")), []
    for write in (data.write, lambda output: write_by_tasks(data, output, division=TaskDivision(1, 3))):
        with pytest.raises(Problem) as error:
            write("a.tar")
        problems.append(error.value.name)
        assert not Path("a.tar").exists()
    assert problems[0] == problems[1]


def test_repeated_keys_in_shards_are_warnings(here: Path) -> None:
    for number in range(40):
        Path(f"in-{number}.tar").write_bytes(tar({f"{key}.cls": b"%d" % number for key in (number, number + 1)}))
    said: list[list[str]] = []
    for write in (
        lambda data: data.split("a-%d.tar", count=9),
        lambda data: write_by_tasks(data, "b-%d.tar", Limits(count=9), division=TaskDivision(1, 20)),
    ):
        lines: list[str] = []
        write(tarkit.open("in-*.tar", on_problem=lines.append).shuffle(1))
        said.append([line.rpartition("[")[2] for line in lines])
    assert said[0] == said[1]
    assert contents("a-*.tar") == contents("b-*.tar")
    write_by_tasks(tarkit.open("in-*.tar", allow="repeated-key", on_problem=pytest.fail).shuffle(1), "c.tar")


def test_neighbours_of_one_key_in_two_ranges(here: Path) -> None:
    """All samples have one key: those on both sides of the border of two ranges too."""
    for number in range(6):
        Path(f"in-{number}.tar").write_bytes(tar({"x.cls": b"%d" % number}))
    for data in (tarkit.open("in-*.tar").shuffle(1), tarkit.open("in-*.tar", allow="repeated-key").shuffle(1)):
        with pytest.raises(Problem, match=r"has the same key 'x' \[joined-sample\]"):
            write_by_tasks(data, "b-%d.tar", Limits(count=1), division=TaskDivision(1, 1))


# ---- Any archives

KINDS = st.sampled_from(sorted(ORDERS))
BEFORE: list[Callable[[Dataset], Dataset]] = [
    lambda data: data,
    lambda data: data.match("[abc]"),
    lambda data: data.rekey("{stem}/{key}"),
    lambda data: data.drop("jpg"),
    lambda data: data.where("cls > 0"),
    lambda data: data.where("cls > 9"),  # none
]
READ = [["in-*.tar"], ["in-*.tar"], *([["v.parquet"], ["v.parquet", "in-0.tar"]] if find_spec("pyarrow") else [])]
AFTER: list[Callable[[Dataset], Dataset]] = [
    lambda data: data,
    lambda data: data.drop("jpg"),
    lambda data: data.select("cls jpg"),
    lambda data: data.require("cls", on_missing="skip"),
    lambda data: data.require("nothing", on_missing="keep"),
    lambda data: data.rekey("{stem}-{key}"),
]


@pytest.mark.slow
@given(
    name=KINDS,
    seed=st.integers(0, 1 << 32),
    limits=st.sampled_from([None, *LIMITS]),
    division=st.sampled_from([TaskDivision(), TaskDivision(10**9, 1), TaskDivision(20000, 10**6, 1)])
    | st.builds(TaskDivision, st.sampled_from([1, 3000, 20000]), st.integers(1, 9)),
    every=st.sampled_from([None, 2]),
    before=st.sampled_from(BEFORE),
    after=st.sampled_from(AFTER),
    read=st.sampled_from(READ),
)
def test_any_archives(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    seed: int,
    limits: Limits | None,
    division: TaskDivision,
    every: int | None,
    before: Callable[[Dataset], Dataset],
    after: Callable[[Dataset], Dataset],
    read: list[str],
) -> None:
    os.chdir(tmp_path_factory.mktemp("any"))
    draw = random.Random(seed)
    for number in range(draw.randint(1, 6)):
        names = [f"{draw.choice('abcdef')}{number}{draw.randint(0, 3)}.{field}" for field in ("cls", "jpg", "json")]
        names += [f"{draw.randint(0, 20)}.{draw.choice(['cls', 'jpg'])}" for _ in range(draw.randint(0, 1))]
        names += ["README", ".end"][: draw.randint(0, 2)]
        draw.shuffle(names)
        values = {each: draw.choice([b"1", b"-20", b"3.5", b"{}", b"x" * draw.randint(0, 2000)]) for each in names}
        Path(f"in-{number}.tar").write_bytes(tar(values))
    if "v.parquet" in read:
        _make_view(draw)
    allowed: list[dict[str, list[str]]] = [{}, {"allow": ["missing-field"]}, {"skip": ["missing-field"]}]
    allowed += [{"allow": ["joined-sample", "missing-field"]}, {"allow": ["scattered-sample", "repeated-key"]}]
    policy = draw.choice([*allowed, {"skip": ["scattered-sample", "missing-field"]}])

    def dataset() -> Dataset:
        data = tarkit.open(read, **policy, shard_slice=slice(0, None, every), on_problem=lambda line: None)  # type: ignore[arg-type]
        return after(ORDERS[name](before(data)))

    found: list[Written] = []
    errors: list[TarkitError | None] = []
    for write in (written_here, partial(written_by_tasks, division=division)):
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(view_index, "LEAST", 3)
                found.append(write(dataset(), limits))
            errors.append(None)
        except TarkitError as error:
            errors.append(error)
    if isinstance(errors[1], (Usage, tarkit.Unsupported)):
        return
    assert (errors[0] is None) == (errors[1] is None), errors
    if errors[0] is None:
        assert found[0] == found[1]
    else:
        assert not [*Path().glob("b*.tar")]


def _make_view(draw: random.Random) -> None:
    """Make a view: some samples of the archives, in any order, one perhaps twice, with a column `cls` or without."""
    tarkit.open("in-*.tar", allow="all", on_problem=lambda line: None).shuffle(draw.randint(0, 9)).write("v.parquet")
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    rows = parquet.read_table("v.parquet").to_pylist()
    rows = draw.sample(rows, draw.randint(len(rows) // 2, len(rows)))
    for row in rows if draw.random() < 0.5 else ():
        row["cls"] = draw.choice(["1", "-3", None])
    rows += rows[:1] * draw.randint(0, 1)
    if rows:
        parquet.write_table(arrow.Table.from_pylist(rows), "v.parquet", row_group_size=draw.choice([2, 100]))


# ---- What is not done by tasks

REFUSED: dict[str, Callable[[], Dataset]] = {
    "order_file": lambda: tarkit.open("in-*.tar").sort(order_file="keys"),
    "slice": lambda: tarkit.open("in-*.tar").slice(3).sort(),
    "sample": lambda: tarkit.open("in-*.tar").sample(0.5, 1).sort(),
    "keys": lambda: tarkit.open("in-*.tar").keys(["a"]).sort(),
    "map": lambda: tarkit.open("in-*.tar").map(dict).sort(),
    "{index}": lambda: tarkit.open("in-*.tar").sort().rekey("{index}"),
    "maxerr": lambda: tarkit.open("in-*.tar", maxerr=1).sort(),
    "skip='joined-sample'": lambda: tarkit.open("in-*.tar", skip="joined-sample").sort(),
    "skip='repeated-key'": lambda: tarkit.open("in-*.tar", skip="repeated-key").shuffle(1),
    "allow='joined-sample'": lambda: tarkit.open("in-*.tar", allow="joined-sample").sort("cls"),
    "one sort": lambda: tarkit.open("in-*.tar"),
    "more than once": lambda: tarkit.open(["in-00.tar", "in-00.tar"]).sort(),
    "a mix": lambda: tarkit.mix([(tarkit.open("in-00.tar"), 1)], seed=1).shuffle(1),
    "rekey": lambda: tarkit.open("in-*.tar").sort("cls").rekey("{stem}{key}"),
}


@each_row("words", REFUSED)
def test_what_tasks_cannot_do_is_a_usage_error(here: Path, words: str) -> None:
    inputs(3)
    Path("keys").write_bytes(b"a\n")
    with pytest.raises(Usage) as error:
        write_by_tasks(REFUSED[words](), "b.tar")
    assert words in str(error.value)


def test_existing_outputs(here: Path) -> None:
    inputs(3)
    data = tarkit.open("in-*.tar").shuffle(1)
    Path("b-001.tar").write_bytes(b"old")
    Path("b-999.tar").write_bytes(b"old")
    with pytest.raises(TarkitError, match="there are shards of this name"):
        write_by_tasks(data, "b-%03d.tar", Limits(count=4))
    write_by_tasks(data, "b-%03d.tar", Limits(count=4), force=True)
    data.split("a-%03d.tar", count=4)
    assert contents("a-*.tar") == contents("b-*.tar")
    with pytest.raises(Usage, match="both input and output"):
        write_by_tasks(data, "in-01.tar")
    with pytest.raises(TarkitError, match="too few names"):
        write_by_tasks(data, "c-{0..1}.tar", Limits(count=1))
    assert not [*Path().glob("c-*")]


# ---- Tasks that run twice, and blocks that are gone or damaged


def test_tasks_may_run_twice(here: Path) -> None:
    inputs(6)
    data = tarkit.open("in-*.tar").shuffle(1)
    assert written_by_tasks(data, Limits(count=4), tasks=Between(times=2)) == written_here(data, Limits(count=4))


@pytest.mark.slow
@pytest.mark.forks
def test_tasks_in_processes(here: Path) -> None:
    inputs(6)

    class Processes:
        def in_order(self, work: Any, items: Any, /) -> Any:
            return in_order(items, work, 2, share=1)

    data = tarkit.open("in-*.tar").shuffle(1)
    assert written_by_tasks(data, Limits(count=4), tasks=Processes()) == written_here(data, Limits(count=4))


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "deleted": lambda data: None,
    "cut": lambda data: data[:-1],
    "half": lambda data: data[: len(data) // 2],
    "emptied": lambda data: b"",
    "flipped": lambda data: flipped(data, random.Random(len(data)).randrange(len(data)), 4),
    "flipped early": lambda data: flipped(data, 3, 128),
}


def damage(path: Path, how: str) -> None:
    """Damage a file of the spill."""
    data = DAMAGE[how](path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)


BLOCKS = [
    (order_span, "list-0000001"),
    (compare_keys, "list-0000002"),
    (compare_keys, "weights-0000001"),
    (write_samples, "order-0000001"),
    (write_samples, "data-0000001"),
    (scatter_group, "bounds"),
    (order_span, "groups"),
]


@pytest.mark.slow
@each_row("function,name,how", [(*block, how) for block in BLOCKS for how in DAMAGE])
def test_damage_to_the_spill_is_an_error(here: Path, function: Any, name: str, how: str) -> None:
    """Whatever happens to a block between two passes, no output is left that could be taken for a complete one."""
    inputs(6, most=9)
    data = tarkit.open("in-*.tar").shuffle(4)
    data.split("a-%d.tar", size=20480)
    tasks = Between(function, lambda spill: damage(spill / name, how))
    error = None
    try:
        write_by_tasks(data, "b-%d.tar", Limits(size=20480), tasks=tasks)
    except TarkitError as raised:
        error = raised
    if error is None:  # bytes that nobody reads, such as those of a section without records
        assert how == "flipped" or (function, how) == (compare_keys, "flipped early")
        assert contents("a-*.tar") == contents("b-*.tar")
        return
    words = ("is gone", "was cut", "ends at", "not those that its writer wrote")
    assert any(word in f"{error} {error.hint}" for word in words), error
    assert name in str(error)
    assert not [*Path().glob("b-*")]


@each_row("how", ["deleted", "cut", "flipped", "emptied"])
def test_damage_to_a_piece_of_an_archive(here: Path, how: str) -> None:
    inputs(6)

    class Pieces(Between):
        def in_order(self, work: Any, items: Any, /) -> Any:
            found = list(super().in_order(work, items))
            function, context = task_of(work)
            if function is write_samples:
                damage(Path(context.spill.place) / "piece-0000001", how)
            return iter(found)

    with pytest.raises(TarkitError, match="piece-0000001"):
        write_by_tasks(tarkit.open("in-*.tar").shuffle(4), "b.tar", tasks=Pieces())
    assert not Path("b.tar").exists()


def test_an_input_that_changes_between_passes(here: Path) -> None:
    inputs(4)

    def change(spill: Path) -> None:
        Path("in-01.tar").write_bytes(tar({"new.cls": b"1"}))

    def longer(spill: Path) -> None:
        tarkit.open("in-*.tar").write("v.parquet")

    with pytest.raises(TarkitError, match="an input has changed"):
        write_by_tasks(tarkit.open("in-*.tar").shuffle(4), "b.tar", tasks=Between(scatter_group, change))
    pytest.importorskip("pyarrow")
    for function in (scan_inputs, scatter_group):
        tarkit.open("in-00.tar").write("v.parquet")
        with pytest.raises(TarkitError, match=r"v.parquet: the view has changed since its rows were counted"):
            write_by_tasks(tarkit.open("v.parquet").shuffle(4), "b.tar", tasks=Between(function, longer))
    assert not Path("b.tar").exists()


def test_parts_of_a_sample_in_two_inputs_of_which_one_is_dropped(here: Path) -> None:
    Path("a.tar").write_bytes(tar({"1.jpg": b"1"}))
    Path("b.tar").write_bytes(tar({"1.cls": b"1", "5.cls": b"2"}))
    data = tarkit.open(["a.tar", "b.tar"]).sort().require("cls", on_missing="skip")
    for write in (data.write, lambda name: write_by_tasks(data, name, division=TaskDivision(1, 1))):
        with pytest.raises(Problem, match=r"b.tar: at 0: the key '1' was in an earlier input \[joined-sample\]"):
            write("out.tar")


def test_an_error_in_the_middle_leaves_nothing(here: Path) -> None:
    inputs(6)

    class Ends(Between):
        def in_order(self, work: Any, items: Any, /) -> Any:
            for number, found in enumerate(super().in_order(work, items)):
                if task_of(work)[0] is write_samples and number == 2:
                    raise KeyboardInterrupt
                yield found

    with pytest.raises(KeyboardInterrupt):
        write_by_tasks(tarkit.open("in-*.tar").shuffle(4), "b-%d.tar", Limits(count=3), tasks=Ends())
    assert not [*Path().glob("b-*")]


def test_shards_of_another_process_stay(here: Path) -> None:
    """Shards that appear while the passes run are neither replaced nor removed, without `force`."""
    inputs(6)
    other = [f"b-{number}.tar" for number in range(0, 30, 2)]

    def appear(spill: Path) -> None:
        for name in other:
            Path(name).write_bytes(b"of others")

    data = tarkit.open("in-*.tar").shuffle(4)
    with pytest.raises(TarkitError, match="another process has created this shard"):
        write_by_tasks(data, "b-%d.tar", Limits(count=3), tasks=Between(write_samples, appear))
    assert contents("b-*.tar") == {name[1:]: b"of others" for name in other}


def test_shards_of_another_process_stay_after_an_error(here: Path) -> None:
    """A run that fails before it has written removes no shards of another one."""
    inputs(6)
    data = tarkit.open("in-*.tar").shuffle(4)

    def lose(spill: Path) -> None:
        data.split("b-%d.tar", count=3)
        next(spill.glob("data-*")).unlink()

    with pytest.raises(TarkitError):
        write_by_tasks(data, "b-%d.tar", Limits(count=3), tasks=Between(write_samples, lose))
    data.split("a-%d.tar", count=3)
    assert contents("b-*.tar") == contents("a-*.tar")


def test_a_worker_that_does_not_see_the_spill(here: Path) -> None:
    inputs(2)

    def hide(spill: Path) -> None:
        (spill / "in-use").unlink()

    with pytest.raises(TarkitError, match="does not see the directory"):
        write_by_tasks(tarkit.open("in-*.tar").shuffle(4), "b.tar", tasks=Between(scan_inputs, hide))


def test_a_task_that_still_runs_after_the_end_completes_nothing(here: Path) -> None:
    inputs(4)
    for function in (scatter_group, order_span, write_samples):

        def end(spill: Path) -> None:
            os.rename(spill / "in-use", spill / "was")

        data = tarkit.open("in-*.tar").shuffle(4)
        with pytest.raises(TarkitError, match="or it was removed"):
            write_by_tasks(data, "b-%d.tar", Limits(count=2), tasks=Between(function, end))
        assert not [*Path().glob("b*")]


@each_row("name,compared", [("shuffle", True), ("numbers", True), ("key", False)])
def test_keys_are_compared_where_an_order_parts_them(here: Path, name: str, compared: bool) -> None:
    """And where there are several inputs."""
    inputs(2)
    for pattern, expected in (("in-*.tar", compared), ("in-00.tar", False)):
        counts = {each: count for each, count, _ in write_by_tasks(ORDERS[name](tarkit.open(pattern)), "b.tar").passes}
        assert bool(counts["keys"]) == expected
        os.unlink("b.tar")


def test_the_report(here: Path) -> None:
    inputs(4)
    run = Run()
    found = write_by_tasks(tarkit.open("in-*.tar").sort("cls"), "b.tar", run=run)
    assert run.samples == found.samples == run.facts["order"]["out"] > 0
    assert run.bytes == Path("b.tar").stat().st_size
    assert len(run.facts["fingerprint"]) == 32
    assert [each["name"] for each in run.facts["passes"]] == ["scan", "scatter", "order", "keys", "write"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_by_tasks(tarkit.open("in-*.tar").sort("cls"), "c.tar", division=SMALL)
