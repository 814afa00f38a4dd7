"""Sinks: an output is complete or absent; special files are written in place; every error has a file name."""

from __future__ import annotations

import errno
import gzip
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarkit import signals
from tarkit.errors import CommandFailed, Interrupted, TarkitError
from tarkit.streams.copy import Short
from tarkit.streams.sink import CommandSink, DescriptorSink, EncodedSink, FileSink, discard_unfinished, open_sink
from tests._tools import descriptors, each_row, fd_of, on_disk, raising

PART = ".part"
pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    old = os.umask(0o022)
    yield
    os.umask(old)


def mode(path: str) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(os.stat(path).st_mode)


def listing() -> list[str]:
    """Return the names in the directory, including hidden ones."""
    return sorted(os.listdir())


# ---- files


def test_a_file_appears_when_it_is_complete() -> None:
    """Until an output is complete it is a hidden file with the output's name and the process id."""
    with open_sink("path", "out.tar") as sink:
        sink.write(b"half")
        assert listing() == [f".out.tar.{os.getpid()}{PART}"]
        sink.write(memoryview(b" and half"))
        sink.writev([b", ", b"pieces"] * 2000)
        source = on_disk(b"0123456789")
        sink.copy(fd_of(source), 2, 5)
    assert listing() == ["out.tar"]
    assert Path("out.tar").read_bytes() == b"half and half" + b", pieces" * 2000 + b"234"


def test_the_old_file_stays_until_the_output_is_complete() -> None:
    """The old file stays if writing fails, and readers of it are not disturbed by its replacement."""
    Path("out").write_bytes(b"old")
    with open("out", "rb") as reader:
        sink = open_sink("path", "out")
        sink.write(b"new")
        assert Path("out").read_bytes() == b"old"
        with pytest.raises(KeyError), sink:
            raise KeyError
        assert (listing(), Path("out").read_bytes()) == (["out"], b"old")
        with open_sink("path", "out") as sink:
            sink.write(b"new")
        assert (reader.read(), Path("out").read_bytes()) == (b"old", b"new")


@pytest.mark.parametrize(("umask", "new"), [(0o022, 0o644), (0o077, 0o600), (0, 0o666), (0o027, 0o640)])
def test_mode(umask: int, new: int) -> None:
    """A new file gets its mode from the umask, a replaced one keeps its mode."""
    os.umask(umask)
    for name, before in (("fresh", None), ("secret", 0o600), ("script", 0o755), ("locked", 0o444)):
        if before is not None:
            Path(name).touch()
            os.chmod(name, before)
        with open_sink("path", name):
            if before is not None:
                [part] = [each for each in listing() if each.endswith(PART)]
                assert mode(part) == before, "the unfinished file has the same mode"
        assert mode(name) == (new if before is None else before)


def test_symlinks() -> None:
    """Links keep pointing at the replaced file, even if it is new; the unfinished file is in the target's directory."""
    Path("there").mkdir()
    Path("there/file").write_bytes(b"old")
    os.symlink("there/file", "link")
    os.symlink("link", "link2")
    os.symlink("there/missing", "dangling")
    for name, target in (("link", "there/file"), ("link2", "there/file"), ("dangling", "there/missing")):
        with open_sink("path", name) as sink:
            sink.write(name.encode())
            assert any(each.endswith(PART) for each in os.listdir("there"))
        assert os.path.islink(name)
        assert Path(target).read_bytes() == name.encode()
    os.symlink("loop", "loop")
    with pytest.raises(OSError, match="symbolic links"):
        open_sink("path", "loop")


@each_row("name", ["x" * 255, "x" * 240, "é" * 127, "x" * 251 + ".tar", "a b\n.tar", "caf\udce9.tar", "-", ".hidden"])
def test_names(name: str, here: Path) -> None:
    """Names may be as long as the file system allows, of any bytes."""
    with open_sink("path", f"./{name}") as sink:
        sink.write(b"x")
        assert len(listing()) == 1
        assert len(os.fsencode(listing()[0])) <= 255
    assert listing() == [name]


@each_row("text", ["missing/out", "file/out", "missing/", "file/", "folder", "folder/", ".", "x" * 256])
def test_paths_that_cannot_be_files(text: str, here: Path) -> None:
    """The message has the name that was given."""
    Path("file").touch()
    Path("folder").mkdir()
    with pytest.raises(OSError, match=r"No such|Not a dir|Is a dir|too long") as error:
        open_sink("path", text)
    assert error.value.filename == text
    assert listing() == ["file", "folder"]


def test_the_unfinished_file_of_another_process() -> None:
    """The unfinished file of another process with the same id, on another machine or dead, is left alone."""
    other = Path(f".out.{os.getpid()}{PART}")
    other.write_bytes(b"another's")
    one, two = open_sink("path", "out"), open_sink("path", "out")
    assert len(listing()) == 3
    one.write(b"one")
    two.write(b"two")
    two.close()
    one.close()
    assert Path("out").read_bytes() == b"one"
    assert other.read_bytes() == b"another's"
    open_sink("path", "out").abort()
    assert listing() == [other.name, "out"]


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_a_fresh_output_replaces_nothing(late: bool, links: bool, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fresh` replaces no file, neither an old one nor one written meanwhile, with and without hard links."""
    if not links:
        monkeypatch.setattr(os, "link", REFUSED)
    with open_sink("path", "new", fresh=True) as sink:
        sink.write(b"mine")
    assert (here / "new").read_bytes() == b"mine"
    if not late:
        (here / "old").write_bytes(b"theirs")
    with pytest.raises(TarkitError, match="old: another process has created this file"):
        write_late(here / "old")
    assert (here / "old").read_bytes() == b"theirs"
    assert sorted(os.listdir()) == ["new", "old"]


REFUSED = raising(PermissionError, errno.EPERM, "Operation not permitted")
"""What a file system does that has no links, or no modes."""


def write_late(path: Path) -> None:
    """Write a file, and meanwhile another of the same name."""
    with open_sink("path", path.name, fresh=True) as sink:
        sink.write(b"mine")
        path.write_bytes(b"theirs")


def test_abort_leaves_nothing() -> None:
    """Abort removes the unfinished file, also when called twice, and after a failure."""
    sink = open_sink("path", "out")
    sink.write(b"x")
    sink.abort()
    sink.abort()
    assert listing() == []
    source = on_disk(b"short")
    with pytest.raises(Short), open_sink("path", "out") as sink:
        sink.copy(fd_of(source), 0, 10)
    assert listing() == []


def test_a_signal_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends by a signal first removes its unfinished files; complete ones stay."""
    with open_sink("path", "done"):
        pass
    sinks = [open_sink("path", name) for name in ("a", "b")]
    assert len(listing()) == 3
    monkeypatch.setattr(signals, "_ending", False)
    monkeypatch.setattr(signals, "_cleanups", {signals.OUTPUTS: discard_unfinished})
    for place, name in ((signal, "signal"), (os, "kill")):
        monkeypatch.setattr(place, name, lambda *args: None)
    with pytest.raises(SystemExit):
        signals.die(signal.SIGTERM)
    assert listing() == ["done"]
    for sink in sinks:
        sink.abort()


def test_a_mode_that_cannot_be_set(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file cannot get the mode of the one that it replaces, nothing is left open, nor on the disk."""
    Path("out").write_text("before")
    before = descriptors()
    monkeypatch.setattr(os, "fchmod", REFUSED)
    with pytest.raises(PermissionError) as error:
        open_sink("path", "out")
    assert error.value.filename == "out"
    assert (listing(), Path("out").read_text()) == (["out"], "before")
    assert descriptors() <= before


@each_row("output", ["out", "/dev/null"])
def test_a_descriptor_is_closed_once(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error while an output is given up does not matter, and its number may be that of another file by then."""
    sink, closed, real = open_sink("path", output), [], os.close

    def close(fd: int) -> None:
        closed.append(fd)
        real(fd)
        raise OSError(errno.EDQUOT, "over quota")

    number = sink.fd
    monkeypatch.setattr(os, "close", close)
    sink.abort()
    sink.abort()
    assert (closed, listing()) == ([number], [])


def test_a_second_signal_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_ending", False)
    with pytest.raises(Interrupted):
        signals._interrupt(signal.SIGTERM, None)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signals._interrupt(signum, None)


def test_a_signal_while_an_unfinished_file_is_removed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unfinished file that is interrupted during its removal stays known, and is removed by the cleanup."""
    sink = open_sink("path", "out")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", raising(Interrupted, signal.SIGTERM))
        with pytest.raises(Interrupted):
            sink.abort()
    assert len(list(here.iterdir())) == 1
    discard_unfinished()
    assert not list(here.iterdir())
    os.close(sink.fd or 0)


def test_truncate() -> None:
    """Written bytes can be read back and truncated, and writing continues there."""
    with open_sink("path", "out") as sink:
        assert isinstance(sink, FileSink)
        sink.write(b"0123456789")
        assert os.pread(sink.fileno(), 3, 4) == b"456"
        sink.cut(4)
        sink.write(b"x")
        source = on_disk(b"yz")
        sink.copy(fd_of(source), 0, 2)
    assert Path("out").read_bytes() == b"0123xyz"


@pytest.mark.parametrize("sync", [True, False])
def test_fsync(sync: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `sync`, the file is synced before it is renamed, then the directory."""
    synced: list[list[str]] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(listing()), real(fd))[1])
    with open_sink("path", "out", sync=sync) as sink:
        sink.write(b"x")
    assert synced == ([[f".out.{os.getpid()}{PART}"], ["out"]] if sync else [])


@each_row("call", ["fsync", "close", "rename", ""])
def test_failures_at_the_end(call: str, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    """A late error is raised with the name of the output, which does not appear; so if its file was removed."""
    sink = open_sink("path", "out", sync=True)
    sink.write(b"x")
    with monkeypatch.context() as patch:
        if call:
            patch.setattr(os, call, raising(OSError, errno.EDQUOT, "quota"))
        else:
            os.unlink(listing()[0])
        with pytest.raises(OSError, match=r"quota|No such file") as error:
            sink.close()
    assert (error.value.filename, listing()) == ("out", [])


# ---- special files


def test_files_that_are_not_regular() -> None:
    """/dev/null and a FIFO are not replaced, and get all bytes."""
    os.mkfifo("fifo")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(Path("fifo").read_bytes()))
    reader.start()
    source = on_disk(b"0123456789")
    for name in ("/dev/null", "fifo"):
        before = os.stat(name)
        with open_sink("path", name) as sink:
            sink.write(b"abc")
            sink.copy(fd_of(source), 5, 10)
        after = os.stat(name)
        assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    reader.join()
    assert got == [b"abc56789"]


@each_row("folder", ["/dev/fd", "/proc/self/fd"])
@each_row("kind", ["pipe", "file"])
def test_descriptors(folder: str, kind: str, here: Path) -> None:
    """`/dev/fd/N`, as in `>(...)`, is the descriptor itself, which stays open; a file is written at its offset."""
    if kind == "pipe":
        read, write = os.pipe()
    else:
        write = os.open("file", os.O_RDWR | os.O_CREAT)
        os.write(write, b"before")
    with open_sink("path", f"{folder}/{write}") as sink:
        sink.write(b"abc")
    if kind == "pipe":
        assert os.read(read, 10) == b"abc"
        os.close(read)
    else:
        assert Path("file").read_bytes() == b"beforeabc"
    os.close(write)


@pytest.mark.parametrize("fd", [1, 2])
def test_standard_descriptors_by_name(fd: int) -> None:
    """`/dev/stdout` and `/dev/stderr` on a file are written in place: the file is not replaced."""
    with open("file", "wb") as file:
        file.write(b"before ")
        file.flush()
        code = (
            "import sys; from tarkit.streams.sink import open_sink; s = open_sink('path', sys.argv[1]); s.write(b'x')"
        )
        name = "stdout" if fd == 1 else "stderr"
        subprocess.run([sys.executable, "-c", code, f"/dev/{name}"], **{name: file}, check=True)  # type: ignore[call-overload]
        assert os.fstat(file.fileno()).st_ino == os.stat("file").st_ino
    assert Path("file").read_bytes() == b"before x"


def test_a_descriptor_that_is_not_open() -> None:
    """The message has the name of the descriptor."""
    with pytest.raises(OSError, match="Bad file") as error:
        open_sink("path", "/dev/fd/999")
    assert error.value.filename == "/dev/fd/999"


def test_closing_a_descriptor_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of `close`, as on a network file system, is raised with the name of the output."""
    sink = DescriptorSink(os.open("out", os.O_WRONLY | os.O_CREAT), "a name")
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", raising(OSError, errno.EIO, "lost"))
        with pytest.raises(OSError, match="lost") as error:
            sink.close()
    assert error.value.filename == "a name"
    sink.close()


@each_row("act", ["write", "writev", "copy"])
@each_row(("text", "message"), [("/dev/full", "No space"), ("closed pipe", "Broken pipe")])
def test_errors_have_a_name(text: str, message: str, act: str) -> None:
    """The error of any call has the name of the output."""
    if text == "/dev/full":
        sink = open_sink("path", text)
    else:
        read, write = os.pipe()
        os.close(read)
        sink = DescriptorSink(write, text)
    source = on_disk(b"x" * 100)
    with pytest.raises(OSError, match=message) as error:
        {
            "write": lambda: sink.write(b"x"),
            "writev": lambda: sink.writev([b"x", b"y"]),
            "copy": lambda: sink.copy(fd_of(source), 0, 100),
        }[act]()
    assert error.value.filename == text
    sink.abort()


def test_a_full_disk() -> None:
    """With a limit on file sizes, as on a full disk, no file remains."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    source = on_disk(b"x" * 10)
    try:
        for act in (
            lambda sink: sink.write(b"x" * 200_000),
            lambda sink: sink.writev([b"x" * 10_000] * 20),
            lambda sink: [sink.copy(fd_of(source), 0, 10) for _ in range(20_000)],
        ):
            with pytest.raises(OSError, match="too large") as error, open_sink("path", "out") as sink:
                act(sink)
            assert (error.value.filename, listing()) == ("out", [])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


# ---- commands


@each_row(
    ("command", "status"),
    [
        ("cat > /dev/null; exit 3", 3),
        ("exit 3", 3),
        ("cat | (exit 3)", 3),
        ("(exit 3) | cat", 3),
        ("kill -9 $$", -signal.SIGKILL),
    ],
)
def test_a_command_that_fails(command: str, status: int, here: Path) -> None:
    """The status of any part of the pipeline counts, if it reads or not; the message ends with stderr's last line."""
    with pytest.raises(CommandFailed) as error, open_sink("pipe", f"echo why >&2; {command}") as sink:
        sink.write(bytes(4_000_000))
    assert error.value.status == status
    assert command in str(error.value)
    assert ("SIGKILL" in str(error.value)) == (status < 0)
    assert str(error.value).endswith(": why")


def test_a_command_that_ends_early_and_well() -> None:
    """A command that succeeds without reading all of its input is an error."""
    with (
        pytest.raises(OSError, match="exited before reading all its input") as error,
        open_sink("pipe", "head -c 10 > out") as sink,
    ):
        sink.write(bytes(4_000_000))
    assert error.value.filename == "pipe:head -c 10 > out"


def test_aborting_a_command() -> None:
    """An aborted command is ended before it sees the end of its input."""
    sink = open_sink("pipe", "cat > /dev/null; touch done")
    assert isinstance(sink, CommandSink)
    sink.write(b"x")
    sink.abort()
    assert sink.command.process.poll() is not None
    assert listing() == []


# ---- codecs


def test_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed file is written by any call, absent until it is closed and after an error, which names it."""
    source = on_disk(b"0123456789")
    with EncodedSink(open_sink("path", "out.gz"), "gz", 1) as sink:
        assert sink.fd is None
        sink.write(b"abc")
        sink.writev([b"d", b"e"])
        sink.copy(fd_of(source), 5, 10)
        assert listing() == [f".out.gz.{os.getpid()}{PART}"]
    assert gzip.decompress(Path("out.gz").read_bytes()) == b"abcde56789"
    with pytest.raises(Short), EncodedSink(open_sink("path", "out2.gz"), "gz", None) as sink:
        sink.copy(fd_of(source), 5, 11)
    assert listing() == ["out.gz"]
    full = open_sink("path", "/dev/full")
    with pytest.raises(OSError, match="No space") as error, EncodedSink(full, "gz", 1) as sink:
        sink.write(b"abc")
    assert error.value.filename == "/dev/full"


# ---- stdout


def test_stdout() -> None:
    """A duplicate of descriptor 1 is written; closing it leaves 1 open."""
    saved = os.dup(1)
    with open("out", "wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        try:
            for kind, text in (("stdout", "-"), ("path", "/dev/stdout")):
                with open_sink(kind, text) as sink:
                    assert sink.name == "stdout"
                    sink.write(b"abc")
            os.fstat(1)
        finally:
            os.dup2(saved, 1)
            os.close(saved)
    assert Path("out").read_bytes() == b"abcabc"
