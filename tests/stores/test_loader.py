"""`tarkit.loader` over URLs: finished shards are not requested again, an index beside a shard replaces its headers."""

from __future__ import annotations

import gzip
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("urllib3")

import tarkit
from tests.conftest import Archive, Run, tar
from tests.stores._http import HttpServer

ALL = [f"{shard}/{number:02}" for shard in range(4) for number in range(20)]


def serve(server: HttpServer, run: Run, archive: Archive) -> str:
    """Serve four shards of twenty samples, with indexes; return the pattern of their URLs."""
    url = ""
    for shard in range(4):
        members = {
            f"{shard}/{number:02}.{field}": b"%d" % number * (9_000 if field == "bin" else 1)
            for number in range(20)
            for field in ("bin", "cls")
        }
        name = archive(members, f"{shard}.tar")
        run("index", name, "--format", "tsv")
        server.serve(f"/{shard}.index.tsv", Path(f"{shard}.index.tsv").read_bytes())
        url = server.serve(f"/{shard}.tar", Path(name).read_bytes())
    server.log.clear()
    return url.replace("/3.tar", "/{0..3}.tar")


def continued(state: dict[str, Any], *data: Any, **how: Any) -> tarkit.Loader:
    """Return a loader at a position."""
    loader = tarkit.loader(*data, **how)
    loader.load_state_dict(state)
    return loader


def requested(server: HttpServer) -> set[str]:
    """Return the objects that were requested since the last call."""
    found = {path for _, path, _ in server.log}
    server.log.clear()
    return found


def test_a_position(server: HttpServer, run: Run, archive: Archive) -> None:
    """After it only open shards and those that follow are requested."""
    urls = serve(server, run, archive)
    loader = tarkit.loader(urls, shuffle_shards=False)
    samples = iter(loader)
    first = [next(samples)["__key__"] for _ in range(50)]
    state = loader.state_dict()
    samples.close()  # type: ignore[attr-defined]
    again = continued(state, urls, shuffle_shards=False)
    server.log.clear()
    rest = list(again)
    assert first + [sample["__key__"] for sample in rest] == ALL
    assert all(sample["bin"] == sample["cls"] * 9_000 for sample in rest)
    assert requested(server) == {"/2.tar", "/3.tar"}


def test_all_samples_in_a_random_order(server: HttpServer, run: Run, archive: Archive) -> None:
    """Each is looked up by the index beside its shard."""
    urls = serve(server, run, archive)
    loader = tarkit.loader(urls, shuffle="full", equal="drop")
    assert len(loader) == 80
    assert {f"/{shard}.index.tsv" for shard in range(4)} <= requested(server)
    found = list(loader)
    assert sorted(sample["__key__"] for sample in found) == ALL
    assert [sample["__key__"] for sample in found] != ALL
    assert all(sample["bin"] == sample["cls"] * 9_000 for sample in found)


def change(server: HttpServer, path: str) -> None:
    """Replace an object by one of the same size."""
    served = server.objects[path]
    server.serve(path, served.data, etag='"2"')


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("stop", [0, 13, 20, 35])
def test_an_object_that_was_replaced(
    cache: bool, stop: int, server: HttpServer, run: Run, archive: Archive, tmp_path: Path
) -> None:
    """One that was opened is refused by its version, also when it is read from a cache; others may be replaced."""
    urls = serve(server, run, archive)
    options = {"cache": str(tmp_path / "cache")} if cache else {}
    loader = tarkit.loader(urls, shuffle_shards=False, storage_options=options)
    samples = iter(loader)
    first = [next(samples)["__key__"] for _ in range(stop)]
    state = loader.state_dict()
    samples.close()  # type: ignore[attr-defined]
    change(server, "/2.tar")
    other = {} if cache else {"cache": str(tmp_path / "c2")}
    again = continued(state, urls, shuffle_shards=False, storage_options=other)
    assert first + [sample["__key__"] for sample in again] == ALL
    change(server, "/0.tar")
    refused = pytest.raises(tarkit.Usage, match=r"/0\.tar: not the shard of the position")
    with refused if stop else nullcontext():
        continued(state, urls, shuffle_shards=False)


def test_a_compressed_object_that_was_replaced(server: HttpServer) -> None:
    """It is refused as well. A server that names no version cannot tell."""
    data = gzip.compress(tar({f"{number}.cls": b"" for number in range(9)}))
    for etag in ('"1"', None):
        url = server.serve("/a.tar.gz", data, etag=etag)
        loader = tarkit.loader(url)
        next(iter(loader))
        state = loader.state_dict()
        server.serve("/a.tar.gz", data, etag=etag and '"2"')
        if etag:
            with pytest.raises(tarkit.Usage, match=r"/a\.tar\.gz: not the shard of the position"):
                continued(state, url)
        else:
            assert len(list(continued(state, url))) == 8


def test_joined_objects_that_were_replaced(server: HttpServer, run: Run, archive: Archive) -> None:
    """They are recognised by their versions."""
    pytest.importorskip("pyarrow")
    urls = serve(server, run, archive)
    joined = server.serve("/o.tar", tar({f"{key}.txt": b"t" for key in ALL}))
    data = tarkit.open(urls).join(joined)
    loader = tarkit.loader(data)
    assert next(iter(loader))["txt"] == b"t"
    state = loader.state_dict()
    assert len(list(continued(state, data))) == 79
    change(server, "/o.tar")
    again = continued(state, data)
    with pytest.raises(tarkit.Usage, match=r"o\.tar: not what the position was joined with"):
        next(iter(again))
