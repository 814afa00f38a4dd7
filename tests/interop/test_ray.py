"""Ray Data over shards of tarkit; the rules of `check --target ray`."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._odd import odd_archive
from tests.commands.test_check import found
from tests.commands.test_check_target import COUNT, TARGETS, F, M, claims
from tests.conftest import Archive, Run
from tests.interop._packages import needs, result

pytestmark = pytest.mark.torch

# A cluster of one process; `read` returns the samples of shards, or the name of an error.
READ = """
import logging, sys, tempfile, ray
with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as directory:  # sockets need short paths
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
             object_store_memory=80 << 20, _temp_dir=directory)
    logging.disable()
    ray.data.DataContext.get_current().enable_progress_bars = False
    def read(paths, **options):
        try:
            once = {"max_retries": 0}  # Ray tries a worker that died again for ever
            rows = ray.data.read_webdataset(paths, override_num_blocks=1, ray_remote_args=once, **options).take_all()
        except Exception as error:
            return type(error).__name__
        absent = lambda name, value: name == "__url__" or value is None or isinstance(value, float) and value != value
        return [(row.pop("__key__"), {k: v for k, v in row.items() if not absent(k, v)}) for row in rows]
    found = PRINTED
    ray.shutdown()
print(found)
"""
SHARDS = READ.replace("PRINTED", '[read(path, decoder=None) for path in open("shards").read().split()]')
VALUES = READ.replace("PRINTED", "[read(sys.argv[1:]), read(sys.argv[1], decoder=None), read('pt.tar')]")
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}


def read_by_ray(*paths: str) -> list[Any]:
    """Return what Ray reads from each shard."""
    Path("shards").write_text("\n".join(paths))
    rows: list[Any] = result(SHARDS, **QUIET)
    return rows


def samples_of(path: str) -> list[tuple[str, dict[str, bytes]]] | None:
    """Return the samples as tarkit reads them, None if a field has no content."""
    try:
        return [(each.key, dict(each.items())) for each in tarkit.open(path)]
    except tarkit.TarkitError:
        return None


def test_it_reads_what_tarkit_writes(run: Run) -> None:
    """Keys, text, numbers and JSON are those that tarkit encoded; what Ray decodes is noted."""
    needs("ray", "pandas")
    expected = []
    with tarkit.ShardWriter("s-%d.tar", count=2) as out:
        for n in range(5):
            fields = {"txt": f"ß{n}", "cls": n, "json": {"n": n, "of": ["a", "b"]}, "bin": bytes([n, 255])}
            out.write(f"d/k{n:02}", fields)
            expected.append((f"d/k{n:02}", fields))
    ran = run("check", "s-0.tar", "s-1.tar", "s-2.tar", "--target", "ray")
    assert "ray decodes 'cls', 'json', 'txt'" in ran.stdout.decode()
    tarkit.open("s-0.tar").map(lambda sample: {**sample, "a.pt": b"x"}).write("pt.tar")
    assert found(run("check", "pt.tar", "--target", "ray", exit=1)) == [(F, 0), (F, 5120)]
    decoded, stored, refused = result(VALUES, "s-0.tar", "s-1.tar", "s-2.tar", **QUIET)
    assert refused == "RayTaskError(ValueError)"
    assert decoded == expected
    assert stored == samples_of("s-0.tar")


def test_the_rules_of_check(run: Run, archive: Archive) -> None:
    """A shard for which `check --target ray` finds nothing is read as tarkit reads it, any other one is not."""
    needs("ray", "pandas")
    good = TARGETS["good"][0]
    cases = {case: archive(data, f"{place}.tar") for place, (case, (data, _)) in enumerate(TARGETS.items())}
    cases["named .tgz"] = archive(gzip.compress(good), "a.tgz")
    for codec in ("gz", "xz", "bz2", "lz4", "zst"):
        run("cat", cases["good"], "-o", f"a.tar.{codec}")
        cases |= {
            codec: f"a.tar.{codec}",
            f"{codec}, unnamed": archive(Path(f"a.tar.{codec}").read_bytes(), f"{codec}.tar"),
        }
    for (case, shard), rows in zip(cases.items(), read_by_ray(*cases.values()), strict=True):
        said = {problem for problem, _ in found(run("check", shard, "--target", "ray", exit=None))} & {F, M}
        if F in said:
            assert isinstance(rows, str), case
        else:
            assert (rows != samples_of(shard)) == (M in said), (case, rows)


def test_odd_archives(here: Path) -> None:
    """The same for names, types and extension headers drawn at random: no verdict is false."""
    needs("ray", "pandas")
    for seed in range(COUNT // 2):
        Path(f"{seed}.tar").write_bytes(odd_archive(random.Random(seed)))
    checked = 0
    for seed, rows in enumerate(read_by_ray(*(f"{seed}.tar" for seed in range(COUNT // 2)))):
        said = claims(f"{seed}.tar", "ray")
        if said is None:
            continue
        checked += 1
        assert said != {F} or isinstance(rows, str), seed
        assert (rows == samples_of(f"{seed}.tar")) == (not said), (seed, said, rows)
    assert checked > COUNT // 5
