"""A regular file on stdin is as good as a pipe, in every format and from any offset, also where it is read twice."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from tests._tools import each_row
from tests.conftest import Run, tar, tarkit

COMMANDS = [
    "cat -",
    "cat -s 3 --seed 1 -",
    "sort -",
    "sort -r -s cls -",
    "shuffle --seed 1 -",
    "shuffle --seed 1 --epochs 2 - -o out/{epoch}.tar",
    "split - -c 3 -o out/%d.tar",
    "split - -n 2 -o out/%d.tar",
    "split - -n 2 --max-shards 3 --remainder repeat -o out/%d.tar",
    "split - --parts a=0.5,b=0.5 -o out/{part}-%d.tar",
    "mix - --seed 1 --until all",
    "proc --worker cat -",
    "proc -c 'rm sample.txt' -",
    "extract - -C out/x",
    "extract - -C out/x --match 1",
    "tsv -f cls -",
    "show -",
    "show --names -",
    "get 3.cls -",
    "stats -",
    "check -",
    "check - --fix out/fixed.tar",
    "check - --target webdataset",
]
FORMATS = ["in.tar", "in.tar.gz", "in.tar.zst", "in.zip", "in.cbors"]


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write seven samples in each format."""
    folder = tmp_path_factory.mktemp("formats")
    members = {f"{n}.{field}": b"%d" % (n * 3 % 7) for n in range(7) for field in ("cls", "txt")}
    (folder / "in.tar").write_bytes(tar(members))
    for name in FORMATS[1:]:
        tarkit("cat", folder / "in.tar", "-o", folder / name)
    return folder


@pytest.mark.slow
@each_row("number", range(len(COMMANDS)))
def test_stdin(number: int, run: Run, formats: Path) -> None:
    """The output and the files are those of a pipe: of an archive, and of one other format for each command."""
    command = COMMANDS[number]
    for name in (FORMATS[0], FORMATS[1 + number % 4]):
        data = (formats / name).read_bytes()
        Path(name).write_bytes(data)
        Path("before").write_bytes(bytes(range(256)) * 4 + data)
        wanted = _run(command, run, data)
        for file, offset in ((name, 0), ("before", 1024)):
            fd = os.open(file, os.O_RDONLY)
            os.lseek(fd, offset, os.SEEK_SET)
            try:
                assert _run(command, run, fd) == wanted, (name, offset)
            finally:
                os.close(fd)


def _run(command: str, run: Run, data: bytes | int) -> tuple[bytes, str, int, dict[str, bytes]]:
    """Run a command with an open file, or with a pipe that has the data; return all that it writes."""
    shutil.rmtree("out", ignore_errors=True)
    Path("out").mkdir()
    if isinstance(data, int):
        ran = run(*shlex.split(command), stdin=data, exit=None)
    else:
        read, write = os.pipe()
        os.write(write, data)
        os.close(write)
        ran = run(*shlex.split(command), stdin=read, exit=None)
        os.close(read)
    files = {str(path): path.read_bytes() for path in sorted(Path("out").rglob("*")) if path.is_file()}
    return ran.stdout, ran.stderr, ran.status, files
