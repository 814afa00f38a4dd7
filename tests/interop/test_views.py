"""Views: DuckDB, polars and pandas read those of tarkit, and tarkit reads those that they write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarkit import demo_recipes
from tests._documents import documents
from tests._tools import each_row
from tests.conftest import Archive, Run, keys
from tests.interop._packages import ROOT, needs, result

pytestmark = pytest.mark.torch
SECTION = "Choose by values of the samples"

TOOLS = {
    "duckdb": """
import duckdb
duckdb.sql('''COPY (SELECT *, __stop__ - __start__ AS bytes, __key__ || '!' AS note FROM 'v.parquet'
    WHERE __key__ <> 'a1' ORDER BY __key__ DESC) TO 'w.parquet' ''')
""",
    "polars": """
import polars
view = polars.read_parquet("v.parquet").filter(polars.col("__key__") != "a1").sort("__key__", descending=True)
note, size = polars.col("__key__").cast(str) + "!", polars.col("__stop__") - polars.col("__start__")
view.with_columns(size.alias("bytes"), note.alias("note")).write_parquet("w.parquet")
""",
    "pandas": """
import pandas
view = pandas.read_parquet("v.parquet")
view["bytes"], view["note"] = view["__stop__"] - view["__start__"], view["__key__"] + "!"
view[view["__key__"] != "a1"].sort_values("__key__", ascending=False).to_parquet("w.parquet")
""",
}


@each_row("tool", [*TOOLS])
def test_a_view_goes_there_and_back(run: Run, archive: Archive, tool: str) -> None:
    """Rows are chosen, ordered and labelled by the tool; tarkit reads the samples, and the values."""
    needs(tool)
    archive([(f"a{n}.{field}", field.encode() * n) for n in range(4) for field in ("cls", "txt")])
    run("cat", "in.tar", "-o", "v.parquet")
    result(TOOLS[tool] + "\nprint(0)")
    run("cat", "w.parquet", "--where", "bytes == 2048 and note >= 'a2'", "-o", "out.tar")
    assert keys(Path("out.tar")) == "a3 a2"
    run("sort", "w.parquet", "-s", "note", "-o", "again.parquet")
    assert run("tsv", "again.parquet", "-f", "note").stdout == b"__key__\tnote\na0\ta0!\na2\ta2!\na3\ta3!\n"


@each_row(("tool", "language"), [("duckdb", "sql"), ("polars", "py")])
def test_the_join_of_the_documentation(run: Run, here: Path, tool: str, language: str) -> None:
    """Samples are chosen by values that a table has, as the page on views says it."""
    needs(tool)
    demo_recipes.write(here)
    run("table", "shards/", "-f", "cls json.score", "-o", "values.view.parquet")
    blocks = documents.blocks((ROOT / "docs/views.md").read_text(encoding="utf-8"))
    [text] = [each.text for each in blocks if (each.section, each.language) == (SECTION, language)]
    result(f"import {tool}\n{text if tool == 'polars' else f'duckdb.sql({text!r})'}\nprint(0)")
    run("cat", "best.view.parquet", "-o", "best.tar")
    assert keys(Path("best.tar")) == "dog/7 dog/4 dog/3 dog/2"
