"""The table of `scripts/bench requests`: what commands cost over objects whose replies come late.

For each command: requests, bytes, and the time as a ratio to `cat` of the same objects with the same delay, by default
and where no gap between headers is read (`TARKIT_NET_GAP`), as where bytes are paid for. The server is `_bench_s3.py`.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from _bench_data import entry, marker
from _bench_run import BenchError, Stage, median
from _bench_s3 import COUNTS
from _bench_stores import KEYS

DELAYS = (1, 20, 100)  # milliseconds until a reply begins
GAPS = ("", "0")  # TARKIT_NET_GAP
SHARDS = 4
SAMPLES = 400  # of a shard
SIZE = 66_000  # bytes of a sample
FEW = 100  # samples that are looked up


class Measured(NamedTuple):
    """The cost of a command."""

    requests: int
    size: int  # bytes
    seconds: float


def write_objects(directory: Path, samples: int) -> None:
    """Write shards of pictures with a class."""
    numbers = random.Random(1)
    directory.mkdir(parents=True)
    for shard in range(SHARDS):
        with (directory / f"p-{shard}.tar").open("wb") as tar:
            for index in range(samples):
                key = f"{shard}/{index:05d}"
                tar.write(entry(f"{key}.jpg", numbers.randbytes(numbers.randrange(SIZE // 2, SIZE * 3 // 2))))
                tar.write(entry(f"{key}.cls", b"%d" % (index % 10)))
            tar.write(marker(tar.tell()))
    keys = [f"{shard}/{index:05d}\n" for shard in range(SHARDS) for index in range(samples)]
    (directory / "keys").write_text("".join(numbers.sample(keys, min(FEW, len(keys) // 4))))


@contextmanager
def late_server(directory: Path, delay: int) -> Iterator[str]:
    """Run the server; yield its URL."""
    words = [sys.executable, str(Path(__file__).with_name("_bench_s3.py")), str(directory), str(delay)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def works(tarkit: Sequence[str], python: str, samples: int) -> dict[str, Stage]:
    """Return the commands, by their names, in the order in which they run: some read what others wrote."""
    urls = f"s3://in/p-{{0..{SHARDS - 1}}}.tar"
    local = f"in/p-{{0..{SHARDS - 1}}}.tar"
    read: dict[str, list[str]] = {
        "cat": ["cat", urls, "-o", "out/o.tar"],
        "stats": ["stats", urls, "--total"],
        "check": ["check", urls],
        "check --same-as": ["check", urls, "--same-as", local],
        "tsv": ["tsv", urls, "-f", "cls", "-o", "out/o.tsv"],
        "index": ["index", urls, "--format", "dali", "-o", "out/"],
        "sort": ["sort", urls, "--reverse", "-o", "out/o.tar"],
        "shuffle": ["shuffle", urls, "--seed", "1", "-o", "out/o.tar"],
        "shuffle to a view": ["shuffle", urls, "--seed", "1", "-o", "v.parquet"],
        "cat of the view": ["cat", "v.parquet", "-o", "out/o.tar"],
        "stats of the view": ["stats", "v.parquet", "--total"],
        f"cat of {FEW} rows of the view": ["cat", "v.parquet", "--slice", f"0:{FEW}", "-o", "out/o.tar"],
        f"cat of {FEW} keys of the view": ["cat", "v.parquet", "--keys-from", "in/keys", "-o", "out/o.tar"],
        "get, the last sample": ["get", f"{SHARDS - 1}/{samples - 1:05d}.cls", urls, "-o", "out/one"],
        "show --html, a quarter": ["show", urls, "--html", "out/o.html", "-c", str(samples * SHARDS // 4)],
    }
    found: dict[str, Stage] = {name: [*tarkit, *words] for name, words in read.items()}
    few = f"random.Random(1).sample(range(len(data)), {FEW})"
    code = {
        "indexed()": "data = tarkit.open(urls).indexed()",
        f"{FEW} samples of indexed()": f"data = tarkit.open(urls).indexed(); found = data[{few}]",
        "loader": "for sample in tarkit.loader(urls, shuffle=100, seed=1): sample['jpg']",
        'loader(shuffle="full")': "for sample in tarkit.loader(urls, shuffle='full', seed=1): sample['jpg']",
    }
    start = f"import random, tarkit; urls = {urls!r}\n"
    return found | {name: [python, "-c", start + text] for name, text in code.items()}


def measure(stage: Stage, place: Path, environ: Mapping[str, str], url: str) -> Measured:
    """Run a command once. Raises BenchError if it fails."""
    shutil.rmtree(place / "out", ignore_errors=True)
    (place / "out").mkdir()
    _counts(url)
    began = time.perf_counter()
    ran = subprocess.run(stage, cwd=place, env=environ, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if ran.returncode:
        raise BenchError(f"{' '.join(map(str, stage))}: exit status {ran.returncode}\n{ran.stderr[-2000:]}")
    return Measured(*_counts(url), seconds)


def _counts(url: str) -> tuple[int, int]:
    with urlopen(url + COUNTS) as reply:
        requests, size = map(int, reply.read().split())
    return requests, size


def requests_table(
    place: Path,
    tarkit: Sequence[str],
    python: str,
    environ: Mapping[str, str],
    quick: bool,
    only: re.Pattern[str] | str,
) -> str:
    """Measure all commands with each delay; return a Markdown table."""
    samples = SAMPLES // 10 if quick else SAMPLES
    write_objects(place / "in", samples)
    commands = works(tarkit, python, samples)
    results: dict[tuple[str, str], list[Measured]] = {}
    for delay in DELAYS:
        with late_server(place, delay) as url:
            measure(commands["cat"], place, {**environ, **KEYS, "AWS_ENDPOINT_URL": url}, url)  # caches are warm then
            for name, stage in commands.items():
                for gap in GAPS:
                    if name not in ("cat", "shuffle to a view") and not re.search(only, name):
                        continue
                    print(f"{name}, {delay} ms, gap {gap or 'as it is'} ...", file=sys.stderr, flush=True)
                    variables = {**environ, **KEYS, "AWS_ENDPOINT_URL": url, "TARKIT_NET_GAP": gap}
                    results.setdefault((name, gap), []).append(measure(stage, place, variables, url))
    heads = ["requests", "MB", *(f"{delay} ms" for delay in DELAYS)]
    lines = [["work", *heads, *(f"gap 0: {head}" for head in heads)], ["---", *["---:"] * (2 * len(heads))]]
    for name in commands:
        if (name, "") in results:
            cells = [_cells(results[name, gap], results["cat", ""]) for gap in GAPS]
            lines.append([name, *(cell for each in cells for cell in each)])
    total = sum(path.stat().st_size for path in (place / "in").iterdir())
    words = f"{SHARDS} shards, {samples} samples each, {total / 1e6:.0f} MB; times are ratios to cat by default."
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + f"\n\n{words}"


def _cells(costs: Sequence[Measured], cat: Sequence[Measured]) -> list[str]:
    ratios = [f"{cost.seconds / base.seconds:.1f}" for cost, base in zip(costs, cat, strict=True)]
    return [
        f"{median([cost.requests for cost in costs]):.0f}",
        f"{median([cost.size for cost in costs]) / 1e6:.1f}",
        *ratios,
    ]
