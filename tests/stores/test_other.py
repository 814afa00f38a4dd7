"""What is special about the file systems of fsspec: what all stores do alike is in `test_contract`."""

from __future__ import annotations

import random
import sys
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tarkit.errors import TarkitError, Unsupported, Usage
from tarkit.stores import schemes
from tarkit.stores.store import StoreOptions
from tests._tools import archive, contents, each_row
from tests.conftest import Run
from tests.conftest import tarkit as tarkit_command
from tests.stores._backends import ftp
from tests.stores._tools import put, whole

fsspec = pytest.importorskip("fsspec")
from tarkit.stores.other import OtherStore

DATA = random.Random(7).randbytes(2_000_000)
_numbers = count()


@pytest.fixture
def store() -> OtherStore:
    return OtherStore(StoreOptions(retries=2, timeout=5))


@pytest.mark.forks
@each_row("url", ["ftp://me:s3#cret@h/a", "ftp://me:s3?cret@h/a", "sftp://me:s3/cret@h/a", "ftp://h:port/a"])
@each_row("words", ["stats {}", "cat {}*.tar -o x.tar", "create recipe -o {}"])
def test_logins_that_end_a_url(words: str, url: str, here: Path) -> None:
    """One line that says what to do, without the password."""
    if url.startswith("sftp"):
        pytest.importorskip("paramiko")
    (here / "recipe").write_text("a.txt text:1\n")
    said = tarkit_command(*words.format(url).split(), exit=2).stderr
    assert "not valid" in said
    assert "%23" in said
    assert "s3" not in said.replace("s3://", "")


@each_row("fault", ["open", "write", "rename", "short"])
def test_a_write_that_fails_leaves_nothing(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it replace what was there."""
    from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

    root, store = f"memory://fault{next(_numbers)}/", OtherStore(StoreOptions())
    put(store, f"{root}a", b"old")

    def fail(*args: object, **how: object) -> None:
        raise OSError(28, "No space left on device")

    where, name = {
        "open": (MemoryFileSystem, "_open"),
        "write": (MemoryFile, "write"),
        "rename": (MemoryFileSystem, "cp_file"),
        "short": (MemoryFile, "write"),
    }[fault]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, (lambda self, data: len(data)) if fault == "short" else fail, raising=False)
        with pytest.raises(TarkitError, match="memory://") as caught:
            put(store, f"{root}a", DATA)
    assert "not written" in str(caught.value) or "arrived" in str(caught.value)
    assert [info.url for info in store.list(root)] == [f"{root}a"]
    assert whole(store, f"{root}a") == b"old"


def test_a_file_system_that_renames_onto_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of Hadoop, which refuses or does nothing if the name is taken."""
    from fsspec.implementations.local import LocalFileSystem

    rename = LocalFileSystem.mv

    def refuse(self: object, one: str, two: str) -> None:
        if Path(two).exists():
            raise FileExistsError(two)
        rename(self, one, two)

    def ignore(self: object, one: str, two: str) -> None:
        if not Path(two).exists():
            rename(self, one, two)

    url, store = f"local://{tmp_path}/a", OtherStore(StoreOptions())
    for number, way in enumerate((refuse, ignore)):
        monkeypatch.setattr(LocalFileSystem, "mv", way)
        put(store, url, b"%d" % number)
        put(store, url, b"new%d" % number)
        assert whole(store, url) == b"new%d" % number
        assert [info.url for info in store.list(f"local://{tmp_path}/")] == [url]


def test_no_server() -> None:
    store = OtherStore(StoreOptions(retries=1, timeout=2))
    with pytest.raises(TarkitError, match="refused"):
        whole(store, "ftp://127.0.0.1:1/a.tar")


def test_a_connection_that_ends_is_made_anew(tmp_path: Path) -> None:
    """A server that closes idle connections, or restarts."""
    store = OtherStore(StoreOptions(retries=2, timeout=2))
    with ftp(tmp_path) as backend:
        root = backend.place
        put(store, f"{root}a", DATA)
        [connection] = store._connections.values()
        connection._system.ftp.sock.shutdown(2)
        assert whole(store, f"{root}a") == DATA


@each_row("url", ["data://x", "github://o:n@main/a", "zip://a.tar"])
def test_file_systems_that_cannot_rename_are_not_written(url: str) -> None:
    with pytest.raises((Unsupported, TarkitError)) as caught:
        put(OtherStore(StoreOptions()), url, b"x")
    assert "cannot rename" in str(caught.value) or "Install" in str(caught.value) or "installed" in str(caught.value)


def test_schemes_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fsspec the hint names the extra as well; `pipe:` is there always."""
    assert schemes.find_scheme("nobody://x") is None
    assert schemes.find_scheme("memory://x") == schemes.OTHER
    assert "fsspec" not in str(schemes.unknown_scheme_error("nobody://x").hint)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.delitem(sys.modules, "tarkit.stores.other")
    assert schemes.find_scheme("memory://x") is None
    hint = str(schemes.unknown_scheme_error("nobody://x").hint)
    assert "'pipe:COMMAND nobody://x'" in hint
    assert "pip install 'tarkit[fsspec]'" in hint


@each_row("scheme", ["ftp", "sftp"])
def test_names_with_a_question_mark(scheme: str, store: OtherStore) -> None:
    """The library would take what comes before it for the name."""
    if scheme == "sftp":
        pytest.importorskip("paramiko")
    for name in ("a?b.tar", "d/?a.tar", "a.tar?"):
        url = f"{scheme}://127.0.0.1:1/{name}"
        for call in (store.head, store.delete, partial(whole, store), partial(put, store, data=b"x")):
            with pytest.raises(FileNotFoundError):
                call(url)  # type: ignore[operator]


def test_directories_and_chains(tmp_path: Path) -> None:
    root, store = f"local://{tmp_path}/", OtherStore(StoreOptions())
    put(store, f"{root}d/a", b"x")
    with pytest.raises(IsADirectoryError):
        whole(store, f"{root}d")
    with pytest.raises(Usage):
        store.put(f"{root}d/", False)
    with pytest.raises(Usage, match="chains"):
        whole(store, f"{root}d::{root}a")
    assert [info.url for info in store.list(root, 0)] == []


@pytest.mark.forks
def test_commands(run: Run) -> None:
    """An object of a file system is a source of a recipe."""
    url = f"memory://recipe{next(_numbers)}/a.tar"
    Path("in.tar").write_bytes(data := archive({"4.txt": b"x"}))
    run("cat", "in.tar", "-o", url)
    Path("recipe").write_text(f"a.bin\t{url}\n")
    run("create", "recipe", "-o", "made.tar")
    assert contents(Path("made.tar").read_bytes()) == [("a.bin", data)]
