"""MDS: mosaicml-streaming reads what tarkit writes, and tarkit what it writes, compressed by each of its codecs."""

from __future__ import annotations

from pathlib import Path

import pytest

import tarkit
from tests.conftest import Archive, Run, tar
from tests.interop._packages import BUILD, needs, result

pytestmark = pytest.mark.torch
STREAMING = "mosaicml-streaming"

# The package itself imports torchvision and transformers; its formats need neither.
FORMATS = f"""
import io, json, sys, types
import numpy as np
from PIL import Image
for name in ("streaming", "streaming.base"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [{str(BUILD / STREAMING)!r} + "/" + name.replace(".", "/")]
from streaming.base.format.mds.reader import MDSReader
from streaming.base.format.mds.writer import MDSWriter
"""

READ = """
rows = []
for shard in json.load(open("mds/index.json"))["shards"]:
    reader = MDSReader.from_json("mds", None, shard)
    reader.validate(False)
    rows += [reader[number] for number in range(len(reader))]
print([row | {"png": row["png"].size} for row in rows])
"""

WRITE = """
columns = {"id": "int", "image": "png", "label": "int", "v": "ndarray", "meta": "json", "text": "str"}
for form in (None, "zstd:3", "gz:5", "bz2"):
    with MDSWriter(out=f"mds-{form}".replace(":", "-"), columns=columns, compression=form, hashes=["sha1"],
                   size_limit=500) as out:
        for n in range(5):
            file = io.BytesIO()
            Image.new("L", (2, 1), n).save(file, "PNG")
            value = np.arange(n + 1, dtype="float32")
            out.write({"id": n, "image": Image.open(io.BytesIO(file.getvalue())), "label": -n, "v": value,
                       "meta": {"a": n}, "text": f"t{n}"})
print(0)
"""


def test_both_ways(run: Run, archive: Archive) -> None:
    """Values are those of the fields; shards come back in order, whatever their compression."""
    needs("torch", "PIL", "numpy", build=STREAMING)
    result(FORMATS + WRITE, build=STREAMING)
    for name in ("None", "zstd-3", "gz-5", "bz2"):
        data = tarkit.open(
            f"mds-{name}", set="png:image cls:label npy:v json:meta txt:text", key="{id:03d}", decode=True
        )
        rows = [(s.key, s["png"].size, s["cls"], s["npy"].tolist(), s["json"], s["txt"]) for s in data]
        numbers = [[float(i) for i in range(n + 1)] for n in range(5)]
        assert rows == [(f"00{n}", (2, 1), -n, numbers[n], {"a": n}, f"t{n}") for n in range(5)]
        data.write(f"{name}.tar")
    png = tarkit.open("None.tar").head()[0]["png"]
    fields = {"png": png, "cls": b"7", "json": b'{"a":[1]}', "txt": "é".encode(), "bin": b"\xff"}
    archive(tar([(f"k{n}.{field}", content) for n in range(3) for field, content in fields.items()]), "a.tar")
    Path("mds").mkdir()
    run("split", "a.tar", "-c", "2", "-o", "mds/shard.%05d.mds")
    values = {"png": (2, 1), "cls": 7, "json": {"a": [1]}, "txt": "é", "bin": b"\xff"}
    assert result(FORMATS + READ, build=STREAMING) == [{"__key__": f"k{n}", **values} for n in range(3)]
