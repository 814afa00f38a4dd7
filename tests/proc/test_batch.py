"""proc -c --batch: one command over the files of many samples gives what one command for each gives."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tarkit
from tarkit.proc.shell import BATCH_BYTES
from tests._tools import each_row, slow, traced
from tests.conftest import Archive, Content, Run, entries, keys, tar

SIX: dict[str, Content] = {f"{index}.{field}": f"{index} {field}".encode() for index in range(6) for field in "xy"}
BAD_3 = "for f in sample-*.__key__; do test $(cat $f) != 3 || { echo bad >&2; exit 4; }; done"

SCRIPT = """
for key in sample*.__key__; do
    s=${key%.__key__}
    case $(< $s.act) in
    keep) ;;
    touch) touch $s.txt ;;
    change) echo "$(< $s.txt) changed" > $s.new; mv $s.new $s.txt ;;
    add) echo 1 > $s.a.b; echo 2 > $s.z ;;
    remove) rm -f $s.txt ;;
    drop) rm $s.* ;;
    rename) k=$(< $key); echo "new/$k" > $key ;;
    large) head -c 300000 /dev/zero > $s.big ;;
    quiet) rm $s.act ;;
    fail) echo "cannot do $(< $key)" >&2; exit 3 ;;
    link) ln -s nowhere $s.link ;;
    key) echo /etc/passwd > $key ;;
    signal) kill -9 $$ ;;
    esac
done
"""
GOOD = ("keep", "touch", "change", "add", "remove", "drop", "rename", "large", "quiet")
BAD = ("fail", "link", "key", "signal")


def draw(random: Random, share: float) -> dict[str, Content]:
    """Return samples that say what is done with them; a `share` of them fails."""
    members: dict[str, Content] = {}
    if random.random() < 0.3:
        members["README"] = b"without key"
    for number in range(random.choice((1, 7, 20, 33))):
        act = random.choice(BAD if random.random() < share else GOOD)
        key = f"{random.choice(('a', 'b/c', 'it~s'))}/{number}"
        fields = {"act": act.encode(), "txt": random.randbytes(3).hex().encode(), "seg.png": b"x"}
        for field in random.sample(list(fields), len(fields)):
            members[f"{key}.{field}"] = fields[field]
    return members


def prepare(random: Random, share: float, tmp_path: Path) -> str:
    """Write an archive of such samples; return the command that does it."""
    (tmp_path / "in.tar").write_bytes(tar(draw(random, share)))
    (tmp_path / "script").write_text(SCRIPT)
    return f"bash {tmp_path}/script"


def of_one(text: str) -> str:
    """Return a message with the name that the file of a sample has alone."""
    return text.replace("sample-000000.", "sample.")


def without_times(rejects: Path) -> list[tuple[str, Any]]:
    """Return names and contents of rejects, without what differs from run to run."""
    found: list[tuple[str, Any]] = []
    for name, content in entries(rejects.read_bytes()):
        value: Any = content
        if name.endswith("__error__.json"):
            value = {**json.loads(of_one(content.decode())), "seconds": 0}  # type: ignore[union-attr]
        found.append((name, value))
    return found


@pytest.mark.parametrize("seed", [*range(3), *map(slow, range(3, 12))])
def test_batches_give_what_single_samples_give(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    command = prepare(random, random.choice((0, 0.05, 0.3)), tmp_path)
    on_error = random.choice(("skip", "keep"))

    def result(batch: int | None, processes: int) -> tuple[Any, ...]:
        problems: list[str] = []
        data = tarkit.open(tmp_path / "in.tar", on_problem=problems.append)
        rejects = tmp_path / "rejects.tar" if on_error == "skip" else None
        data = data.proc(command, batch=batch, processes=processes, on_error=on_error, rejects=rejects)  # type: ignore[arg-type]
        data.write(tmp_path / "out.tar")
        return (tmp_path / "out.tar").read_bytes(), list(map(of_one, problems)), rejects and without_times(rejects)

    expected = result(None, 1)
    assert result(random.choice((1, 2, 3)), 3) == expected
    assert result(random.choice((5, 8, 100)), random.choice((1, 2))) == expected


@pytest.mark.parametrize("seed", range(4))
def test_the_first_failure_is_that_of_its_sample(seed: int, tmp_path: Path) -> None:
    random = Random(100 + seed)
    command = prepare(random, 0.2, tmp_path)

    def message(batch: int | None) -> str:
        try:
            tarkit.open(tmp_path / "in.tar").proc(command, batch=batch).write(tmp_path / "out.tar")
        except tarkit.TarkitError as error:
            assert not (tmp_path / "out.tar").exists()
            return of_one(str(error))
        return ""

    assert message(random.choice((2, 6, 50))) == message(None)


def test_files_and_variables(run: Run, archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command sees: numbered files in order, and no variables of one sample."""
    monkeypatch.setenv("TARKIT_KEY", "of another run")
    command = 'ls > list; echo "$(tr "\\n" " " < list)$TARKIT_KEY$TARKIT_INDEX$TARKIT_SHARD"; rm list'
    ran = run("proc", "-c", command, "--batch", "4", archive(SIX), "-v", "-o", "out.tar")
    names = [f"sample-{number:06d}.{field}" for number in range(4) for field in ("__key__", "x", "y")]
    seen = [line for line in ran.lines if "__key__" in line]
    assert seen == [f"0: list {' '.join(names)} ", f"4: list {' '.join(names[:6])} "]
    assert entries(Path("out.tar").read_bytes()) == entries(tar(SIX))


def test_programs_whose_names_end_in_sample(tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(tar(SIX))
    for name in ("resample.sh", "re-sample.sh", "sample.sh"):
        (tmp_path / name).write_text("true")
        data = tarkit.open(tmp_path / "in.tar").proc(f"bash {tmp_path}/{name}", batch=4)
        assert data.write(tmp_path / "out.tar").samples == 6
    with pytest.raises(tarkit.TarkitError, match="not sample"):
        tarkit.open(tmp_path / "in.tar").proc("cat <sample.x", batch=4)


def test_one_failure_is_told_from_the_others(run: Run, archive: Archive) -> None:
    ran = run("proc", "-c", BAD_3, "--batch", "6", archive(SIX), "--on-error", "skip")
    assert keys(ran.stdout) == "0 1 2 4 5"
    assert ran.lines[-2:] == [
        "tarkit: warning: in.tar: '3' ended with status 4: bad",
        "tarkit: 1 sample failed and was left out",
    ]
    assert ran.lines.count("bad") == 1


def test_runs_of_a_batch_with_a_failure(run: Run, archive: Archive) -> None:
    """Halves are run again: a batch, two halves of it, and so on along the one that fails."""
    data = {f"{index}.x": b"x" for index in range(8)}
    command = f"ls sample-*.x | wc -l >> {Path.cwd()}/runs; {BAD_3}"
    run("proc", "-c", command, "--batch", "8", archive(data), "--on-error", "skip")
    assert Path("runs").read_text().split() == ["8", "4", "2", "2", "1", "1", "4"]


@each_row(
    ("program", "name"),
    [
        ("touch", "tn_sample-000001.x"),
        ("touch", "sample.x"),
        ("touch", "montage"),
        ("touch", "sample-000006.x"),
        ("touch", "sample-1.x"),
        ("mkdir", "sample-000000"),
    ],
)
def test_files_of_no_sample(program: str, name: str, run: Run, archive: Archive) -> None:
    command = f"{program} {name} # sample-"
    ran = run("proc", "-c", command, "--batch", "6", archive(SIX), "-o", "out.tar", exit=1)
    message = f"left '{name}', which belongs to no sample of the batch: call it sample-000000.FIELD and so on"
    assert ran.lines[0] == f"tarkit: in.tar: '0' {message}, or remove it"
    assert not Path("out.tar").exists()


def test_results_for_none(run: Run, archive: Archive) -> None:
    """A sample without files is dropped, as alone; a command that fails for all is run for each."""
    command = "rm sample-000001.*"
    ran = run("proc", "-c", command, "--batch", "3", archive(SIX), "-p", "2")
    assert keys(ran.stdout) == "0 2 3 5"
    ran = run("proc", "-c", "exit 7", "--batch", "4", "in.tar", "--on-error", "keep", "--retries", "1")
    assert entries(ran.stdout) == entries(tar(SIX))
    assert ran.lines[0] == "tarkit: warning: in.tar: '0' ended with status 7 (2 attempts)"


def test_timeout_is_for_each_sample(run: Run, archive: Archive) -> None:
    hangs = "for f in sample-*.__key__; do test $(cat $f) != 4 || exec sleep 60; done"
    archive({name: content for name, content in SIX.items() if name[0] in "45"})
    ran = run("proc", "-c", hangs, "--batch", "2", "in.tar", "--timeout", "1.5", "--on-error", "skip")
    assert keys(ran.stdout) == "5"
    assert "tarkit: warning: in.tar: '4' took longer than 1.5 s and was ended" in ran.lines


def test_samples_of_one_key_and_large_ones(tmp_path: Path) -> None:
    """A batch ends at its bytes; samples of one key are different files."""
    size = BATCH_BYTES // 3
    members = [("a.bin", bytes(size)), ("b.bin", bytes(size)), ("a.x", b"1"), ("c.bin", bytes(size)), ("d.x", b"2")]
    (tmp_path / "in.tar").write_bytes(tar(members))  # type: ignore[arg-type]
    command = f"ls sample-*.* | grep -c __key__ >> {tmp_path}/counts"
    data = tarkit.open(tmp_path / "in.tar", allow="scattered-sample", on_problem=lambda line: None)
    data = data.proc(command, batch=100)
    assert data.write(tmp_path / "out.tar").samples == 5
    assert (tmp_path / "out.tar").read_bytes() == (tmp_path / "in.tar").read_bytes()
    assert (tmp_path / "counts").read_text().split() == ["4", "1"]


@pytest.mark.slow
def test_memory_is_bounded(tmp_path: Path) -> None:
    """Twice the samples take no more memory, however many are in a batch."""

    def peak(count: int) -> int:
        path = tmp_path / f"{count}.tar"
        path.write_bytes(tar({f"{number:05d}.bin": bytes(200_000) for number in range(count)}))
        with traced() as memory:
            tarkit.open(path).proc("true", batch=10_000).write(tmp_path / "out.tar")
            return memory()[1]

    assert peak(800) < 1.5 * peak(400)
