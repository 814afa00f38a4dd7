"""Sinks: an output is complete or not there; what is no file is written in place; every error has a name."""

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
from functools import partial
from pathlib import Path

import pytest

from tarkit import signals
from tarkit.errors import CommandFailed, Interrupted, TarkitError
from tarkit.proc.workdir import remove_directories
from tarkit.streams.command import end_commands
from tarkit.streams.copy import Short
from tarkit.streams.sink import CommandSink, DescriptorSink, EncodedSink, FileSink, Sink, discard_unfinished, open_sink
from tests._tools import PATIENT, each_row, fd_of, on_disk

PART = ".part"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, with the usual umask."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """022, whatever this session has."""
    old = os.umask(0o022)
    yield
    os.umask(old)


def mode(path: str) -> int:
    """The permissions of a file."""
    return stat.S_IMODE(os.stat(path).st_mode)


def listing() -> list[str]:
    """The names in the folder, hidden ones too."""
    return sorted(os.listdir())


# ---- files


def test_a_file_appears_when_it_is_complete() -> None:
    """Until then there is something beside it, whose name says what it is and whose."""
    with open_sink("path", "out.tar") as sink:
        sink.write(b"half")
        assert listing() == [f".out.tar.{os.getpid()}{PART}"]
        sink.write(memoryview(b" and half"))
        sink.writev([b", ", b"pieces"] * 2000)
        source = on_disk(b"0123456789")
        sink.copy(fd_of(source), 2, 5)
    assert listing() == ["out.tar"]
    assert Path("out.tar").read_bytes() == b"half and half" + b", pieces" * 2000 + b"234"


def test_the_old_file_stays_until_then() -> None:
    """Also when the writing fails, and whoever has it open goes on reading it."""
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
    """A new file has what the umask leaves, one that is replaced keeps its own."""
    os.umask(umask)
    for name, before in (("fresh", None), ("secret", 0o600), ("script", 0o755), ("locked", 0o444)):
        if before is not None:
            Path(name).touch()
            os.chmod(name, before)
        with open_sink("path", name):
            if before is not None:
                [part] = [each for each in listing() if each.endswith(PART)]
                assert mode(part) == before, "nor is it more open before it is complete"
        assert mode(name) == (new if before is None else before)


def test_symlinks() -> None:
    """They keep pointing at what is replaced, also when that was not there; the part lies beside it."""
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
    """As long as the file system allows, of any bytes."""
    with open_sink("path", f"./{name}") as sink:
        sink.write(b"x")
        assert len(listing()) == 1
        assert len(os.fsencode(listing()[0])) <= 255
    assert listing() == [name]


def test_a_name_that_is_too_long() -> None:
    """It is refused before anything is written."""
    with pytest.raises(OSError, match="too long"):
        open_sink("path", "x" * 256)
    assert listing() == []


@each_row("text", ["missing/out", "file/out", "missing/", "file/", "folder", "folder/", "."])
def test_places_where_no_file_can_be(text: str, here: Path) -> None:
    """The message has the name as it was given."""
    Path("file").touch()
    Path("folder").mkdir()
    with pytest.raises(OSError, match=r"No such|Not a dir|Is a dir") as error:
        open_sink("path", text)
    assert error.value.filename == text
    assert listing() == ["file", "folder"]
    assert listing() == ["file", "folder"]


def test_another_part_is_in_the_way() -> None:
    """One of a process of our number, on another machine or long dead, is left alone."""
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


def test_two_processes() -> None:
    """Each writes its own; the last to finish is what stays, whole."""
    code = """if True:
        import sys
        from tarkit.streams.sink import open_sink
        with open_sink("path", "out") as sink:
            sink.write(sys.argv[1].encode() * 100000)
            print()
            input()"""
    both = [
        subprocess.Popen([sys.executable, "-c", code, letter], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for letter in "ab"
    ]
    for process in both:
        assert process.stdout
        process.stdout.readline()
    assert len(listing()) == 2
    for process, letter in zip(both, b"ab", strict=True):
        process.communicate(b"\n", timeout=PATIENT)
        assert Path("out").read_bytes() == bytes([letter]) * 100_000
    assert listing() == ["out"]


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_what_is_fresh_replaces_nothing(late: bool, links: bool, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what was there, and not what another run has written meanwhile; with links and where there are none."""
    if not links:
        monkeypatch.setattr(os, "link", refused)
    with open_sink("path", "new", fresh=True) as sink:
        sink.write(b"mine")
    assert (here / "new").read_bytes() == b"mine"
    if not late:
        (here / "old").write_bytes(b"theirs")
    with pytest.raises(TarkitError, match="old: another process has created this file"):
        write_late(here / "old")
    assert (here / "old").read_bytes() == b"theirs"
    assert sorted(os.listdir()) == ["new", "old"]


def write_late(path: Path) -> None:
    """Write a file, and meanwhile another."""
    with open_sink("path", path.name, fresh=True) as sink:
        sink.write(b"mine")
        path.write_bytes(b"theirs")


def refused(*words: str) -> None:
    """A file system without links."""
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_abort_leaves_nothing() -> None:
    """Also twice, and after a failure."""
    sink = open_sink("path", "out")
    sink.write(b"x")
    sink.abort()
    sink.abort()
    assert listing() == []
    source = on_disk(b"short")
    with pytest.raises(Short), open_sink("path", "out") as sink:
        sink.copy(fd_of(source), 0, 10)
    assert listing() == []


def test_discard_unfinished() -> None:
    """All that is not complete goes at once, what is complete stays."""
    with open_sink("path", "done"):
        pass
    sinks = [open_sink("path", name) for name in ("a", "b")]
    assert len(listing()) == 3
    discard_unfinished()
    assert listing() == ["done"]
    for sink in sinks:
        sink.abort()


def test_death_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever dies of a signal first removes what is not complete, wherever it was open."""
    sink = open_sink("path", "out")
    monkeypatch.setattr(signals, "_ending", False)
    monkeypatch.setattr(signals, "_cleanups", {signals.OUTPUTS: discard_unfinished})
    for place, name in ((signal, "signal"), (os, "kill")):
        monkeypatch.setattr(place, name, lambda *args: None)
    with pytest.raises(SystemExit):
        signals.die(signal.SIGTERM)
    assert listing() == []
    sink.abort()


def test_what_is_cleaned_up_and_in_which_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, then commands, then the directories that they work in, in whatever order they were registered."""
    assert [signals._cleanups[stage] for stage in (signals.OUTPUTS, signals.COMMANDS, signals.DIRECTORIES)] == [
        discard_unfinished,
        end_commands,
        remove_directories,
    ]
    called: list[int] = []
    monkeypatch.setattr(signals, "_cleanups", {})
    for stage in (signals.DIRECTORIES, signals.OUTPUTS, signals.COMMANDS):
        signals.register_cleanup(stage, partial(called.append, stage))
    signals.clean_up()
    assert called == [signals.OUTPUTS, signals.COMMANDS, signals.DIRECTORIES]


def test_a_second_signal_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is on its way through all that cleans up."""
    monkeypatch.setattr(signals, "_ending", False)
    with pytest.raises(Interrupted):
        signals._interrupt(signal.SIGTERM, None)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signals._interrupt(signum, None)


def test_a_signal_while_a_part_is_removed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is still known then, and removed as the last act."""
    sink = open_sink("path", "out")

    def late(path: str) -> None:
        raise Interrupted(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", late)
        with pytest.raises(Interrupted):
            sink.abort()
    assert len(list(here.iterdir())) == 1
    discard_unfinished()
    assert not list(here.iterdir())
    os.close(sink.fd or 0)


def test_a_part_that_has_gone_away() -> None:
    """If somebody removes it, completing fails and says so."""
    sink = open_sink("path", "out")
    os.unlink(listing()[0])
    with pytest.raises(FileNotFoundError) as error:
        sink.close()
    assert (error.value.filename, listing()) == ("out", [])


def test_cut() -> None:
    """What was written can be read again and cut off, and writing goes on there."""
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
    """When asked: the file before it has its name, then the folder."""
    synced: list[list[str]] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(listing()), real(fd))[1])
    with open_sink("path", "out", sync=sync) as sink:
        sink.write(b"x")
    assert synced == ([[f".out.{os.getpid()}{PART}"], ["out"]] if sync else [])


@each_row("call", ["fsync", "close", "rename"])
def test_failures_at_the_end(call: str, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    """Errors that come late count: the file does not appear, and the message has its name."""
    sink = open_sink("path", "out", sync=True)
    sink.write(b"x")
    with monkeypatch.context() as patch:

        def fail(*args: object) -> None:
            raise OSError(errno.EDQUOT, "quota")

        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="quota") as error:
            sink.close()
    assert (error.value.filename, listing()) == ("out", [])


# ---- what is no file


def test_dev_null() -> None:
    """It stays what it is, and so does its mode."""
    before = os.stat("/dev/null")
    with open_sink("path", "/dev/null") as sink:
        sink.write(b"x" * 100)
        source = on_disk(b"x" * 100)
        sink.copy(fd_of(source), 0, 100)
    after = os.stat("/dev/null")
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)


def test_fifo() -> None:
    """Whoever reads it gets all of it."""
    os.mkfifo("fifo")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(Path("fifo").read_bytes()))
    reader.start()
    with open_sink("path", "fifo") as sink:
        sink.write(b"abc")
        source = on_disk(b"0123456789")
        sink.copy(fd_of(source), 5, 10)
    reader.join()
    assert got == [b"abc56789"]
    assert stat.S_ISFIFO(os.stat("fifo").st_mode)


@each_row("folder", ["/dev/fd", "/proc/self/fd"])
@each_row("kind", ["pipe", "file"])
def test_descriptors(folder: str, kind: str, here: Path) -> None:
    """`/dev/fd/N`, as `>(...)` has it: the descriptor itself, which stays open; a file is written where it stands."""
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
    """`/dev/stdout` and `/dev/stderr` into a file are written in place: the file is not replaced."""
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
    """The message says which."""
    with pytest.raises(OSError, match="Bad file") as error:
        open_sink("path", "/dev/fd/999")
    assert error.value.filename == "/dev/fd/999"


def test_closing_a_descriptor_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may say only then that the data are not there."""
    sink = DescriptorSink(os.open("out", os.O_WRONLY | os.O_CREAT), "a name")

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "lost")

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", fail)
        with pytest.raises(OSError, match="lost") as error:
            sink.close()
    assert error.value.filename == "a name"
    sink.close()


@each_row("act", ["write", "writev", "copy"])
@each_row(("text", "message"), [("/dev/full", "No space"), ("closed pipe", "Broken pipe")])
def test_errors_have_a_name(text: str, message: str, act: str) -> None:
    """Whatever call it is that fails."""
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
    """A limit on the size of files is as good as a full disk: nothing stays."""
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


def test_pipe() -> None:
    """The command gets all of it, and has ended when the sink is closed."""
    with open_sink("pipe", "cat > out; printf ' end' >> out") as sink:
        sink.write(b"abc")
        sink.writev([b"d", b"e"])
        source = on_disk(b"0123456789")
        sink.copy(fd_of(source), 5, 10)
    assert Path("out").read_bytes() == b"abcde56789 end"


@each_row("command", ["cat > /dev/null; exit 3", "exit 3", "cat | (exit 3)", "(exit 3) | cat"])
def test_a_command_that_fails(command: str, here: Path) -> None:
    """Its status counts, whether it reads or not, anywhere in a pipeline; what it said last is in the message."""
    with pytest.raises(CommandFailed) as error, open_sink("pipe", f"echo why >&2; {command}") as sink:
        sink.write(bytes(4_000_000))
    assert error.value.status == 3
    assert command in str(error.value)
    assert str(error.value).endswith(": why")


def test_a_command_that_ends_early_and_well() -> None:
    """It has not read all, so the output is not whole."""
    with (
        pytest.raises(OSError, match="exited before reading all its input") as error,
        open_sink("pipe", "head -c 10 > out") as sink,
    ):
        sink.write(bytes(4_000_000))
    assert error.value.filename == "pipe:head -c 10 > out"


def test_a_command_that_is_killed() -> None:
    """A signal has a name."""
    with pytest.raises(CommandFailed, match="SIGKILL"), open_sink("pipe", "kill -9 $$") as sink:
        sink.write(b"x")


def test_aborting_a_command() -> None:
    """It is ended before it can take the end of its input for a good one."""
    sink = open_sink("pipe", "cat > /dev/null; touch done")
    assert isinstance(sink, CommandSink)
    sink.write(b"x")
    sink.abort()
    assert sink.command.process.poll() is not None
    assert listing() == []


# ---- codecs


def test_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec in front of a file: written by any call, absent until it is closed and after an error."""
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


def test_encoded_to_a_full_disk() -> None:
    """The error comes at the latest when it is closed, with the name of the file."""
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


def test_a_plain_sink_closes_nothing() -> None:
    """Who opened the descriptor has it still."""
    with open("out", "wb", buffering=0) as file:
        with Sink(file.fileno(), "x") as sink:
            sink.write(b"a")
        file.write(b"b")
    assert Path("out").read_bytes() == b"ab"
