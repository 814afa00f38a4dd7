"""`tarkit.loader` over URLs: finished shards are not requested again, an index beside a shard replaces its headers."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("urllib3")

import tarkit
from tests.conftest import Archive, Run
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
    again = tarkit.loader(urls, shuffle_shards=False)
    again.load_state_dict(state)
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
