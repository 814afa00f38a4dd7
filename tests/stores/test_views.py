"""Views of archives in stores, and views in stores: what is read, and what may be named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore")
arrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

from tarkit.pipeline.view_rows import locate_archive
from tarkit.streams.location import Location, is_view
from tests._tools import each_row
from tests.conftest import keys, tar
from tests.stores._s3 import Bucket
from tests.stores._servers import tarkit_run

A = [(f"a{n}.{field}", field.encode() * 200) for n in range(30) for field in ("cls", "jpg")]


def put_table(bucket: Bucket, name: str, columns: dict[str, Any], **how: Any) -> str:
    """Put a Parquet file of these columns into a bucket; return its URL."""
    sink = arrow.BufferOutputStream()
    parquet.write_table(arrow.table(columns), sink, **how)
    return bucket.put(name, sink.getvalue().to_pybytes())


def put_view(bucket: Bucket, name: str, shard: str) -> str:
    """Put a view of one sample of an archive with this name into a bucket."""
    return put_table(bucket, name, {"__key__": ["a0"], "__shard__": [shard], "__start__": [0], "__stop__": [3072]})


def keys_of(*words: str) -> list[str]:
    """Return the keys of the samples that a command writes."""
    tarkit_run("cat", *words, "-o", "t.tar")
    return keys(Path("t.tar")).split()


def test_there_and_back(bucket: Bucket, here: Path) -> None:
    """A view may be an object, of objects, and a file of objects; the archive is the same."""
    archive = bucket.put("a.tar", tar(A))
    tarkit_run("shuffle", archive, "--seed", "1", "-o", "s.tar")
    for view in (bucket.url + "v.parquet", "v.parquet"):
        tarkit_run("shuffle", archive, "--seed", "1", "-o", view)
        tarkit_run("cat", view, "-o", "t.tar")
        assert Path("t.tar").read_bytes() == Path("s.tar").read_bytes()


def test_parts_in_a_store(bucket: Bucket, here: Path) -> None:
    """A directory of part files is a view beside its archives, and may name nothing else."""
    bucket.put("a.tar", tar(A))
    put_view(bucket, "v.parquet/part-0.parquet", "a.tar")
    put_view(bucket, "v.parquet/part-1.parquet", "a.tar")
    assert keys_of(f"{bucket.url}v.parquet/", "--rekey", "{index}") == ["0", "1"]
    put_view(bucket, "w.parquet/part-0.parquet", "../other/a.tar")
    assert "foreign-source" in tarkit_run("cat", f"{bucket.url}w.parquet/", exit=1).stderr


OUTSIDE = ["../other/a.tar", "/etc/passwd", "s3://bucket/other/a.tar", "x/../../other/a.tar", "%2e%2e/other/a.tar"]
OUTSIDE += [
    "x/%2e%2e/../other/a.tar",
    "%252e%252e/other/a.tar",
    "x%2f..%2f..%2fother/a.tar",
    "..%5cother/a.tar",
    "..?x",
]


@each_row("shard", OUTSIDE)
def test_a_view_in_a_store_names_what_is_beside_it(bucket: Bucket, here: Path, shard: str) -> None:
    """Archives that are not below its own directory are not opened, unless that is allowed."""
    Bucket(bucket.server, "other/").put("a.tar", tar(A))
    view = put_view(bucket, "v.parquet", shard)
    ran = tarkit_run("cat", view, "-o", "t.tar", exit=1)
    assert "which is not below its own directory [foreign-source]" in ran.stderr
    assert not Path("t.tar").exists()
    if shard.startswith("s3:"):
        assert keys_of(view, "--allow", "foreign-source") == ["a0"]


def test_what_is_beside_it(bucket: Bucket, here: Path) -> None:
    """Names are relative to the directory of the view, or URLs below it."""
    bucket.put("x/a.tar", tar(A))
    for shard in ("x/a.tar", f"{bucket.url}x/a.tar"):
        assert keys_of(put_view(bucket, "v.parquet", shard)) == ["a0"]


def test_an_object_that_changed(bucket: Bucket, here: Path) -> None:
    """A view of an object that was replaced by another one is an error."""
    archive = bucket.put("a.tar", tar(A))
    tarkit_run("cat", archive, "-o", "v.parquet")
    bucket.put("a.tar", tar([("new.bin", bytes(5000)), *A]))
    assert "[changed-source]" in tarkit_run("cat", "v.parquet", "-o", "t.tar", exit=1).stderr
    assert not Path("t.tar").exists()


def test_a_local_archive_in_a_view_in_a_store(bucket: Bucket, here: Path) -> None:
    """A view in a store cannot name a file of this machine."""
    Path("a.tar").write_bytes(tar(A))
    ran = tarkit_run("cat", "a.tar", "-o", bucket.url + "v.parquet", exit=2)
    assert "a.tar: a view at a URL cannot name a local file" in ran.stderr
    assert bucket.names() == []


def test_a_table_in_a_store(bucket: Bucket, here: Path) -> None:
    """A Parquet table without places is read by ranges, as one in a file is."""
    rows = {"__key__": [f"k{n}" for n in range(20)], "bin": [bytes([n]) * 50_000 for n in range(20)]}
    url = put_table(bucket, "t.parquet", rows, row_group_size=5, use_dictionary=False)
    Path("t.parquet").write_bytes(bucket.get("t.parquet"))
    seen: list[Any] = []
    bucket.server.fault = seen.append
    tarkit_run("cat", url, "-o", "a.tar")
    assert 0 < len(seen) < 20
    tarkit_run("cat", "t.parquet", "-o", "b.tar")
    assert Path("a.tar").read_bytes() == Path("b.tar").read_bytes()


def test_a_query_over_objects(bucket: Bucket, here: Path) -> None:
    """Archives in a store are tables of a query, and its result may be a view of them."""
    pytest.importorskip("duckdb")
    archive = bucket.put("a.tar", tar(A))
    query = f"from '{archive}' where size.jpg = 600 and __key__ < 'a2' order by __key__ desc"
    tarkit_run("sql", query, "-o", "v.parquet")
    assert keys_of("v.parquet")[:2] == ["a19", "a18"]
    assert parquet.read_table("v.parquet")["__shard__"].unique().to_pylist() == [archive]


def test_a_query_over_parquet(bucket: Bucket, here: Path) -> None:
    """Tables and views in a store are tables of a query: columns and row groups are fetched that it needs."""
    pytest.importorskip("duckdb")
    rows = {"id": [*range(1000)], "kind": arrow.array(["x", "y"] * 500).dictionary_encode(), "b": [bytes(9999)] * 1000}
    how = {"row_group_size": 100, "compression": "none", "use_dictionary": ["kind"]}
    url = put_table(bucket, "t.parquet", rows, **how)
    bucket.server.log.clear()
    query = f"select kind, count(*) n from '{url}' where id < 50 group by 1 order by 1"
    assert tarkit_run("sql", query).stdout == "kind\tn\nx\t25\ny\t25\n"
    ranges = [request.headers.get("range", "") for request in bucket.server.log if request.what == "get"]
    assert 0 < len(ranges) < 8
    assert all(ranges)
    tarkit_run("cat", bucket.put("d/a.tar", tar(A)), "-o", f"{bucket.url}d/v.parquet")
    view = f"{bucket.url}d/v.parquet"
    assert tarkit_run("sql", f"select count(size.jpg) n from '{view}' where __key__ < 'a2'").stdout == "n\n12\n"
    tarkit_run("sql", f"from '{view}' order by __key__ desc limit 2", "-o", "v.parquet")
    assert keys_of("v.parquet") == ["a9", "a8"]
    assert "no.parquet" in tarkit_run("sql", f"from '{bucket.url}no.parquet'", exit=1).stderr


@each_row(
    ("url", "expected"),
    [("https://h/v.parquet?sig=a/b.tar", True), ("https://h/v.tar?x=.parquet", False), ("s3://b/v?.parquet", True)],
)
def test_signed_urls(url: str, expected: bool) -> None:
    """The name ends before the query of a URL; names of other objects may have a question mark."""
    location = Location("url", url, url)
    assert is_view(location) is expected
    if url.startswith("https://h/v.parquet"):
        assert locate_archive(location, "a.tar")[0].text == "https://h/a.tar"
