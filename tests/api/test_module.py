"""`import tarkit`: the modules it loads, its names, and that the API prints nothing."""

from __future__ import annotations

import ast
import inspect
import signal
from pathlib import Path

import pytest

import tarkit
from tests.conftest import Archive
from tests.test_layers import heavy, loaded


def test_importing_loads_one_module() -> None:
    """The import loads no click, no numpy, no typing, and no module below tarkit."""
    modules = loaded(code="import tarkit") - loaded(code="pass")

    assert modules == {"tarkit"}


def test_reading_loads_little(tmp_path: Path) -> None:
    """Reading a plain file loads no codec, no library for pictures or arrays, and no command line."""
    with tarkit.TarWriter(tmp_path / "a.tar") as out:
        out.write("a", {"txt": "x"})
    code = (
        f"import tarkit; assert [dict(each) for each in tarkit.open({str(tmp_path / 'a.tar')!r})] == [{{'txt': b'x'}}]"
    )
    modules = loaded(code=code)

    allowed = {"dataclasses", "random", "braceexpand"}
    assert "tarkit.pipeline.sample" in modules
    assert [each for each in heavy(modules) if each.partition(".")[0] not in allowed] == []
    assert not {"click", "numpy", "yaml"} & modules
    assert not [each for each in modules if each.startswith(("tarkit.cli", "tarkit.commands"))]


def test_names() -> None:
    """`dir` and `__all__` have the public names, each of which exists and is documented, as are all methods."""
    assert dir(tarkit) == sorted(tarkit.__all__) == tarkit.__all__
    assert set(tarkit._MODULES) | {"__version__"} == set(tarkit.__all__)
    for name in tarkit._MODULES:
        value = getattr(tarkit, name)
        assert value.__name__ == name
        assert inspect.getdoc(value)
        for part, member in inspect.getmembers(value, callable):
            assert part.startswith("_") or inspect.getdoc(member), f"{name}.{part}"
    star: dict[str, object] = {}
    exec("from tarkit import *", star)
    assert set(tarkit.__all__) <= set(star)


def test_a_name_that_is_not_there() -> None:
    """An unknown name is an AttributeError, as in any module."""
    with pytest.raises(AttributeError, match="module 'tarkit' has no attribute 'cat'"):
        tarkit.cat  # noqa: B018
    assert not hasattr(tarkit, "Problems")


def test_nothing_is_printed(archive: Archive, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is printed to stdout or stderr; a problem is a warning. No signal gets a handler."""
    archive([("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")], "scattered.tar")
    archive({"a.x": b"1", "b.x": b"2"}, "good.tar")

    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with pytest.warns(tarkit.TarkitWarning, match=r"\[scattered-sample\]"):
        list(tarkit.open("scattered.tar", allow=["scattered-sample"]))
    data = tarkit.open("good.tar")
    data.sort().write("sorted.tar")
    data.shuffle(seed=1).split("s-%d.tar", count=1)
    data.split("s-%d.tar", count=1, force=True)
    data.keys(["a", "zz"]).write("kept.tar")
    data.table("t.tsv")
    data.extract("out")
    tarkit.index("good.tar", format="dali")
    assert not tarkit.check("scattered.tar").ok
    for sample in tarkit.open("pipe:cat good.tar"):
        assert sample.key == "a"
        break  # the command is ended

    assert capfd.readouterr() == ("", "")
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers


def test_types_know_all_names() -> None:
    """Each name that is loaded when it is used is imported for type checkers too, from the same module."""
    tree = ast.parse(Path(tarkit.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    imported = {
        name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert imported == tarkit._MODULES
