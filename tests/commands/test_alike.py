"""Options and problems mean the same in all commands: what they do is what they do with the output of cat."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import tarfile
from pathlib import Path

import pytest

from tarkit.samples import reader
from tarkit.streams import source
from tests._tools import each_row
from tests.commands.test_cat import FIELDS, SAMPLE, SELECT, SIX, write_lists
from tests.commands.test_cat_problems import DAMAGE
from tests.commands.test_sort import machine
from tests.conftest import KINDS, Archive, Feed, Ran, Rows, Run


def output(run: Run, command: str, *words: str, exit: int = 0) -> tuple[Ran, dict[str, bytes]]:
    """Run a command; return also what it writes to files, and to stdout."""
    shutil.rmtree("out", ignore_errors=True)
    Path("out").mkdir()
    ran = run(*command.split(), *words, exit=exit)
    files = {str(path): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    return ran, files | ({"stdout": ran.stdout} if ran.stdout else {})


# ---- options

SELECTING = ["sort -r", "shuffle --seed 1", "split -o out/%d.tar -c 1", "tsv -f cls", "extract -C out", "show --names"]
SELECTING += ["stats --total"]
CHANGING = ["sort -r", "shuffle --seed 1", "extract -C out", "show --names"]
CUTTING = ("sort", "shuffle", "split")
"""Commands whose -c ends shards."""


def choices() -> list[tuple[str, str]]:
    """Return commands with options that select samples, or change their fields."""
    chosen = [
        (command, options)
        for number, (options, _) in enumerate(SELECT)
        for place, command in enumerate(SELECTING)
        if (number + place) % 3 == 0
        and not (re.search(r"-c\b|--count", options) and command.startswith(CUTTING))
        and not ("--seed" in options and "--seed" in command)
    ]
    changed = [(CHANGING[number % len(CHANGING)], options) for number, (options, _) in enumerate(FIELDS)]
    return chosen + changed


@pytest.mark.slow
@each_row(("command", "options"), choices())
def test_options(command: str, options: str, run: Run, archive: Archive) -> None:
    """Samples are selected, and fields changed, as by cat in front of the command."""
    write_lists()
    name = archive(SIX if options in dict(SELECT) else SAMPLE)
    run("cat", name, *shlex.split(options), "-q", "-o", "cat.tar")
    _, expected = output(run, command, "cat.tar")
    _, made = output(run, command, name, *shlex.split(options))
    assert made == expected


# ---- problems

COMMANDS = {
    # what sort gathers, and a shuffle keeps apart, is not that of cat
    "sort -r -o out/a.tar": {"scattered-sample", "joined-sample", "unmovable-entry"},
    "split -c 1 -o out/%d.tar": set(),
    "shuffle --seed 1 -o out/a.tar": {"scattered-sample", "joined-sample", "unmovable-entry"},
    "tsv -f size -o out/t.tsv": {"joined-sample", "unmovable-entry"},
    "stats --total": {"joined-sample", "unmovable-entry"},
    "extract -C out": {"joined-sample", "scattered-sample", "unmovable-entry"},
}
"""Command lines, and the problems that mean something else there."""
FEW = {"scattered-sample", "joined-sample", "unmovable-entry"}
# in a stream an entry without a key before the damage follows a sample that is gone already: a warning says so
CASES = [name for name, case in DAMAGE.items() if not case.options and name != "in-a-payload-behind-a-note"]


def rows() -> list[tuple[str, str, str]]:
    """Return each case with some of the commands, files, pipes and compressed files in turn."""
    found = []
    for number, name in enumerate(CASES):
        for place, (command, others) in enumerate(COMMANDS.items()):
            if DAMAGE[name].problem not in others and ((number + place) % 3 == 0 or DAMAGE[name].problem in FEW):
                found.append((name, command, KINDS[(number + place) // 3 % len(KINDS)]))
    return found


@pytest.mark.slow
@each_row(("name", "command", "kind"), rows())
def test_problems(name: str, command: str, kind: str, run: Run, archive: Archive) -> None:
    """By default they are errors without an output; with --skip and --allow the rest is what cat writes."""
    case = DAMAGE[name]
    words = list(map(Feed(kind), [archive(data, f"{number}.tar") for number, data in enumerate(case.inputs)]))
    ran, files = output(run, command, *words, exit=1)
    [line, *_] = [line for line in ran.lines if "[repeated-key]" not in line]
    assert line == f"tarkit: {case.message.format(*words)} [{case.problem}]"
    if not command.startswith("split") and (not command.startswith("extract") or kind == "file"):
        assert not files
    for policy in ("--skip", "--allow"):
        if command.startswith("extract") and case.problem == "duplicate-entry" and policy == "--allow":
            continue  # nothing is extracted twice
        _, kept = output(run, command, *words, policy, case.problem)
        run("cat", *words, policy, case.problem, "-q", "-o", "cat.tar")
        _, expected = output(run, command, "cat.tar", "--allow", case.problem)
        assert kept == expected, policy
        assert policy == "--skip" or files.items() <= kept.items(), "what was written before the error is complete"


# ---- streams

BIG = bytes(range(250)) * 40
LARGE: Rows = [
    ("d", None), ("d/c.bin", BIG), ("NOTE", b"n"), ("d/c.n", b"2"), ("d/b.n", b"1"), ("d/b.bin", BIG + b"b"),
    ("README", b"r"), ("a.bin", BIG + b"a"), ("a.n", b"0"), ("e.n", b"0"), ("e.y", BIG), ("LAST", b"l"),
]  # fmt: skip
AGAIN: Rows = [*LARGE, ("d/c.txt", b"again")]
STREAMED = ["cat -f n", "sort", "sort -s n", "sort -s n -r", "shuffle --seed 2", "shuffle --seed 2 -p 2", "tsv -f n"]
STREAMED += ["shuffle --seed 2 --buffer 9", "split -c 2 -o out/%d.tar", "split -s 20K -o out/%d.tar"]
STREAMED += ["split -n 3 -o out/%d.tar", "extract -C out", "stats --total", "show --names"]
STREAMED += ["get d/b", "get d/b.n", "get d/b.bin", "get -f y"]
STREAMED += ["cat --match [abc]$", "cat --slice 1:3", "cat -c 2", "cat --shard-slice 2:", "cat --skip all", "cat -p 2"]
STREAMED += ["cat -s 2 --seed 1", "cat -s 9 --seed 1", "cat -m 2", "cat --rekey {key}", "cat --maxerr 1 --slice 2:"]
STREAMED += ["cat --allow joined-sample -s 3 --seed 1", "cat -f n -f bin -f 0 --on-missing-field keep"]


@pytest.mark.slow
@each_row(("command", "kind"), [(command, kind) for command in STREAMED for kind in ("pipe", "gzip")])
def test_large_samples_of_streams(command: str, kind: str, run: Run, archive: Archive) -> None:
    """Samples that are larger than memory, with entries without a key around them, are those of a file."""
    name = archive(AGAIN if command.startswith("sort") else LARGE)
    _, expected = output(run, command, name)
    assert expected
    for way in ("plenty", "little"):
        with machine(way), pytest.MonkeyPatch.context() as patch:
            patch.setattr(source, "CHUNK", 1 << 11)
            for module, limit in ((reader, "LARGE"), (source, "HELD")):
                patch.setattr(module, limit, 1 << 12)
            _, made = output(run, command, Feed(kind)(name))
        assert made == expected, way


# ---- seeds, sparse files

DRAWING = ["cat --sample 0.5", "cat -s 50", "cat --sample 0.5 -s 50", "sort -s __random__", "shuffle"]
DRAWING += ["mix --until all"]


@each_row(("command", "kind"), [(command, KINDS[place % 3]) for place, command in enumerate(DRAWING)])
def test_a_drawn_seed(command: str, kind: str, run: Run, archive: Archive) -> None:
    """Without --seed a seed is drawn, printed once and reported; with that seed the output is the same."""
    words = [*command.split(), Feed(kind)(archive({f"{number:03}.cls": b"%d" % number for number in range(100)}))]
    ran = run(*words, "--report", "r.json")
    seed = json.loads(Path("r.json").read_text())["seed"]
    assert [line for line in ran.lines if "seed" in line] == [f"tarkit: seed: {seed}"]
    again = run(*words, "--seed", str(seed), "-q")
    assert (again.stdout, again.stderr) == (ran.stdout, "")


@each_row("path", sorted((Path(__file__).parents[1] / "data").glob("*sparse*.tar")))
def test_sparse_files(path: Path, run: Run) -> None:
    """The content is not stored as it is: an error where it is needed. The sample can be written, its size told."""
    with tarfile.open(path) as file:
        name, size = next((info.name, info.size) for info in file if info.issparse() and "." in Path(info.name).name)
    key, _, field = name.rpartition("/")[2].partition(".")
    for command in (f"get {name}", f"tsv --match {key} -f {field} -o out/t.tsv", "extract -C out"):
        ran, files = output(run, command, str(path), exit=1)
        assert ran.lines[0].endswith("[sparse-entry]")
        assert not files
    with tarfile.open(fileobj=io.BytesIO(run("get", name.removesuffix(f".{field}"), path).stdout)) as file:
        assert name in file.getnames()
    rows = run("tsv", path, "-f", f"size.{field}", "--no-header", "--on-missing-field", "keep").stdout.splitlines()
    assert f"{key}\t{size}".encode() in [row.rpartition(b"/")[2] for row in rows]
