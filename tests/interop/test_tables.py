"""Parquet tables: those of tarkit are read by `datasets`, DuckDB, polars and pandas, and those of these by tarkit."""

from __future__ import annotations

from pathlib import Path

import pytest

import tarkit
from tarkit import demo_recipes
from tests._documents import documents
from tests._tools import each_row
from tests.conftest import Archive, Run, keys
from tests.interop._packages import ROOT, needs, result

pytestmark = pytest.mark.torch

WRITE_HF = """
import datasets, io, PIL.Image
def picture(n, form):
    file = io.BytesIO()
    PIL.Image.new("RGB", (4, 3), (n, n, n)).save(file, form)
    return file.getvalue()
pictures = [picture(0, "PNG"), picture(1, "JPEG"), picture(2, "JPEG")]
paths = [None, None, "x/y.JPEG"]
rows = [
    {"uid": f"u{n}", "image": {"bytes": pictures[n], "path": paths[n]}, "label": n % 2, "v": [n / 2] * 2, "o": {"a": n}}
    for n in range(3)
]
features = datasets.Features({
    "uid": datasets.Value("string"), "image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"]),
    "v": datasets.Sequence(datasets.Value("float32")), "o": {"a": datasets.Value("int64")},
})
datasets.Dataset.from_list(rows, features=features).to_parquet("hf.parquet", batch_size=2)
print(pictures)
"""


def test_tables_of_datasets(run: Run) -> None:
    """Pictures are fields of their formats, classes are numbers, vectors are arrays if the field has such."""
    needs("datasets", "PIL")
    png, *jpegs = result(WRITE_HF)
    run("cat", "hf.parquet", "--key", "uid", "-o", "hf.tar")
    samples = [(sample.key, dict(sample)) for sample in tarkit.open("hf.tar")]
    common = [{"uid": b"u%d" % n, "cls": b"%d" % (n % 2), "o": b'{"a":%d}' % n} for n in range(3)]
    pictures = [{"png": png}, {"jpg": jpegs[0]}, {"jpg": jpegs[1]}]
    vectors = [{"v": b"[0.0,0.0]"}, {"v": b"[0.5,0.5]"}, {"v": b"[1.0,1.0]"}]
    expected = [(f"u{n}", {**common[n], **pictures[n], **vectors[n]}) for n in range(3)]
    assert samples == expected
    data = tarkit.open("hf.parquet", set="npy:v", key="uid", decode=True)
    assert [sample["npy"].tolist() for sample in data] == [[0, 0], [0.5, 0.5], [1, 1]]


READ_HF = """
import datasets
data = datasets.load_dataset("parquet", data_files="t.parquet", split="train")
kinds = {name: type(kind).__name__ for name, kind in data.features.items()}
data = data.cast_column("wav", datasets.Audio(decode=False))  # which needs another library
print(kinds, [(row["__key__"], row["image"] and row["image"].size, row["txt"]) for row in data], sep=", ")
"""


def test_tables_for_datasets(run: Run, archive: Archive) -> None:
    """Pictures and sounds are such for the library, and pictures are decoded."""
    needs("datasets", "PIL")
    import io

    from PIL import Image

    made = io.BytesIO()
    Image.new("RGB", (5, 4)).save(made, "PNG")
    archive([("a.png", made.getvalue()), ("a.txt", b"x"), ("b.txt", b"\xc3\x9f"), ("b.wav", b"RIFF")])
    run("tsv", "in.tar", "-f", "image:jpg,png txt wav", "--on-missing-field", "keep", "-o", "t.parquet")
    kinds, rows = result(READ_HF)
    assert kinds == {"__key__": "Value", "image": "Image", "txt": "Value", "wav": "Audio"}
    assert rows == [("a", (5, 4), "x"), ("b", None, "ß")]


@each_row("tool", ["polars", "pandas"])
def test_the_job_of_the_documentation(run: Run, here: Path, tool: str) -> None:
    """The page on tables has the same job for SQL and for each tool."""
    needs(tool)
    demo_recipes.write(here)
    run("table", "shards/", "-f", "cls txt", "-o", "values.view.parquet")
    blocks = documents.blocks((ROOT / "docs/recipes/tables.md").read_text(encoding="utf-8"))
    [text] = [each.text for each in blocks if each.language == "py" and f"import {tool}" in each.text]
    result(text + "\nprint(0)")
    run("cat", "longest.view.parquet", "-o", "longest.tar")
    assert keys(Path("longest.tar")) == "cat/1 cat/4 dog/1 dog/4"


TOOLS = {
    "duckdb": """
import duckdb
duckdb.sql("COPY (SELECT * FROM 't.parquet' ORDER BY __key__ DESC) TO 'u.parquet'")
""",
    "polars": """
import polars
polars.read_parquet("t.parquet").sort("__key__", descending=True).write_parquet("u.parquet")
""",
    "pandas": """
import pandas
table = pandas.read_parquet("t.parquet").sort_values("__key__", ascending=False)
table.to_parquet("u.parquet")
""",
}


@each_row("tool", [*TOOLS])
def test_there_and_back_through_tools(run: Run, archive: Archive, tool: str) -> None:
    """A table that a tool has read and written has the same samples."""
    needs(tool)
    name = archive(
        [
            (f"{n}.{field}", b"\xff\0%d" % n if field == "jpg" else b"%d" % n)
            for n in range(5)
            for field in ("jpg", "txt")
        ]
    )
    run("tsv", name, "-f", "*", "-o", "t.parquet")
    result(TOOLS[tool] + "\nprint(0)")
    run("cat", "u.parquet", "-o", "u.tar")
    run("check", "u.tar", "--same-as", name)
    assert next(iter(tarkit.open("u.tar"))).key == "4"
    assert Path("u.tar").exists()
