"""`show` describes tenbin by its headers, and msgpack and CBOR by their values."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

import tarkit

numpy = pytest.importorskip("numpy")
pytest.importorskip("msgpack")
pytest.importorskip("cbor2")


def described(**fields: Any) -> dict[str, dict[str, Any]]:
    """Return what `show` says of the fields of a sample, by their names."""
    file = io.BytesIO()
    with tarkit.TarWriter(file) as out:
        out.write("k", fields)
    sample = tarkit.open(io.BytesIO(file.getvalue())).head()[0]
    return {field["field"]: field for field in sample.describe()["fields"]}


def test_values() -> None:
    """Values are shown as Python writes them, arrays by type and shape."""
    arrays = [numpy.ones((2, 3), "float32"), numpy.array(1)]
    seen = described(mp={"a": [1, b"x"]}, cbor={1: "\u00e9"}, ten=arrays)
    assert (seen["mp"]["kind"], seen["mp"]["text"], seen["mp"]["cut"]) == ("msgpack", "{'a': [1, b'x']}", False)
    assert (seen["cbor"]["kind"], seen["cbor"]["text"]) == ("cbor", "{1: '\u00e9'}")
    assert seen["ten"]["arrays"] == [
        {"name": "0", "dtype": "float32", "shape": [2, 3]},
        {"name": "1", "dtype": "int64", "shape": []},
    ]


def test_what_cannot_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage, length and a library that is not there are notes."""
    seen = described(mp=b"\xc1", msg=list(range(40_000)), ten=b"~TenBin~xx")
    assert (seen["mp"]["note"], seen["msg"]["note"]) == ("cannot be decoded", "too long to be decoded")
    assert seen["ten"]["note"] == "invalid header"
    long = described(mp=["x" * 5000])["mp"]
    assert (len(long["text"]), long["cut"]) == (4096, True)
    data = b"\x01"
    monkeypatch.setitem(sys.modules, "msgpack", None)
    assert described(mp=data)["mp"]["note"] == "not decoded: that requires tarkit[msgpack]"
