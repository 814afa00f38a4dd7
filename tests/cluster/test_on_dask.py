"""Commands on a real cluster of Dask: a scheduler and two workers, each a process of its own; tarkit is one too."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tarkit.cluster import plan
from tests._dask import Cluster, NewCluster, read_settings
from tests._tools import each_row, happens, process, small_disk, tarkit
from tests.cluster._tools import contents
from tests.conftest import tar

# how long Dask tries to reach a worker that was killed; the default is 30 s
QUICK = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "2s"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make inputs, and the outputs of one machine."""
    directory, draw = tmp_path_factory.mktemp("made"), random.Random(1)
    for number in range(30):
        entries = {}
        for at in range(20):
            entries[f"{draw.randint(0, 9)}/{number}-{at}.jpg"] = draw.randbytes(draw.randint(0, 30_000))
            entries[[*entries][-1][:-3] + "cls"] = b"%d" % draw.randint(0, 9)
        (directory / f"in-{number:02}.tar").write_bytes(tar(entries))
    inputs = f"{directory}/in-*.tar"
    tarkit("shuffle", inputs, "--seed", "7", "-c", "20", "-o", directory / "a-%03d.tar")
    tarkit("sort", inputs, "-s", "cls", "-t", "int", "--size", "300K", "-o", directory / "s-%03d.tar")
    tarkit("sort", inputs, "-r", "-o", directory / "k.tar.gz")
    return directory


@pytest.fixture
def data(made: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make links to the inputs in the directory of the test, and a directory for the spill. Tasks are small."""
    monkeypatch.setattr(plan, "BLOCK_SIZE", 200_000)
    for path in made.glob("in-*.tar"):
        os.link(path, here / path.name)
    (here / "spill").mkdir()
    return made


def shuffled(cluster: Cluster, *more: str, **others: Any) -> subprocess.Popen[bytes]:
    """Start a shuffle on a cluster."""
    words = ("shuffle", "in-*.tar", "--seed", "7", "-c", "20", "-o", "b-%03d.tar", *more)
    how = ("--dask", cluster.address, "--spill", "spill", "--memory", "1M")
    return process(*words, *how, stderr=subprocess.PIPE, **others)


def assert_same_shards(made: Path, letter: str = "a") -> None:
    """Check that shards have the bytes of one machine, and that nothing else is there."""
    assert contents("b-*.tar") == {path.name[1:]: path.read_bytes() for path in made.glob(f"{letter}-*.tar")}
    assert not [*Path().glob(".*")]
    assert os.listdir("spill") == []


def remove_shards() -> None:
    for path in Path().glob("b-*"):
        path.unlink()


def test_the_bytes_of_one_machine(shared: Cluster, data: Path) -> None:
    how = ("--dask", shared.address, "--spill", "spill")
    tarkit("shuffle", "in-*.tar", "--seed", "7", "-c", "20", "-o", "b-%03d.tar", *how)
    assert_same_shards(data)
    remove_shards()
    pytest.importorskip("pyarrow", reason="views are Parquet files")
    tarkit("cat", "in-*.tar", "-o", "v.parquet")
    tarkit("sort", "v.parquet", "-s", "cls", "-t", "int", "--size", "300K", "-o", "b-%03d.tar", *how)
    assert_same_shards(data, "s")
    said = tarkit("sort", "in-*.tar", "-r", "-o", "k.tar.gz", "-v", *how).stderr.decode()
    one, other = Path("k.tar.gz").read_bytes(), (data / "k.tar.gz").read_bytes()
    assert gzip.decompress(one) == gzip.decompress(other)
    assert one == other
    assert "tarkit: scatter: " in said


def test_several_epochs(shared: Cluster, data: Path) -> None:
    words = ("shuffle", "in-0*.tar", "--seed", "7", "--epochs", "2", "-o")
    tarkit(*words, "a-{epoch}.tar")
    tarkit(*words, "b-{epoch}.tar", "--dask", shared.address, "--spill", "spill")
    assert contents("a-*.tar") == contents("b-*.tar")


PYTHON = """
    import sys, tarkit
    from tarkit.cluster import plan
    plan.BLOCK_SIZE = 200_000
    data = tarkit.open("in-*.tar").shuffle(seed=7)
    how = {"dask": sys.argv[1], "spill": "spill", "memory": 2_000_000}
    shards = tarkit.write_on_cluster(data, "b-%03d.tar", count=20, **how)
    print([shard[1:3] for shard in shards] == [shard[1:3] for shard in data.split("c-%03d.tar", count=20)])
    print(*tarkit.write_on_cluster(data, "all.tar", **how)[0][:3], [shard.name for shard in shards[:2]])
"""


def test_in_python(shared: Cluster, data: Path) -> None:
    words = [sys.executable, "-c", textwrap.dedent(PYTHON), shared.address]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    size = Path("all.tar").stat().st_size
    assert ran.stdout.splitlines() == ["True", f"all.tar 600 {size} ['b-000.tar', 'b-001.tar']"], ran.stderr
    assert_same_shards(data)


COMMANDS = [
    ("check", "in-*.tar", "bad.tar", "--unique", "--require", "jpg"),
    ("check", "in-*.tar", "--same-as", "in-*.tar"),
    ("index", "in-*.tar", "-f", "dali,wids,webshart,tsv,energon", "-o", "OUT/"),
    ("index", "in-*.tar", "--verify"),
    ("stats", "in-*.tar", "bad.tar"),
    ("stats", "in-*.tar", "bad.tar", "--skip", "truncated", "--by", "cls", "--json"),
]


@each_row("words", COMMANDS)
def test_a_task_for_each_input(shared: Cluster, made: Path, here: Path, words: tuple[str, ...]) -> None:
    results = []
    for how in ((), ("--dask", shared.address)):
        directory = here / f"with{len(how)}"
        (directory / "OUT").mkdir(parents=True)
        os.chdir(directory)
        for path in [*made.glob("in-0*.tar")]:
            os.link(path, path.name)
        Path("bad.tar").write_bytes(Path("in-00.tar").read_bytes()[:5000])
        if "--verify" in words:
            tarkit("index", "in-*.tar", "-f", "dali,tsv")
            Path("in-03.idx").write_bytes(b"v1.1 0\n")
        with process(*words, *how, stdout=-1, stderr=-1) as ran:
            out, err = ran.communicate(timeout=60)
        files = {
            path.relative_to(directory): path.read_bytes()
            for path in sorted(directory.rglob("*[!r]"))
            if path.is_file()
        }
        results.append((ran.returncode, out, err, files))
    for one, two in zip(*results, strict=True):
        assert one == two


@each_row(
    "words,said",
    [
        (("shuffle", "in-*.tar", "-o", "b.tar", "--dask", "ADDRESS"), "--dask requires --spill"),
        (("shuffle", "in-*.tar", "-o", "b.tar", "--spill", "spill"), "--spill requires --dask"),
        (("sort", "in-*.tar", "--check-only", "--dask", "ADDRESS"), "--check-only reads samples in turn"),
        (("shuffle", "in-*.tar", "--buffer", "9", "-o", "b.tar", "--dask", "ADDRESS"), "--buffer reads samples"),
        (
            ("shuffle", "in-*.tar", "-o", "b.parquet", "--dask", "ADDRESS", "--spill", "."),
            "b.parquet: workers write archives, not views",
        ),
        (("stats", "in-*.tar", "--match", "1", "--dask", "ADDRESS"), "samples are selected"),
        (("check", "in-*.tar", "--fix", "out.tar", "--dask", "ADDRESS"), "--fix OUT reads one input after the other"),
    ],
)
def test_usage_errors(shared: Cluster, made: Path, here: Path, words: tuple[str, ...], said: str) -> None:
    os.link(made / "in-00.tar", "in-00.tar")
    ran = tarkit(*(shared.address if word == "ADDRESS" else word for word in words), exit=2)
    assert said in ran.stderr.decode()
    assert not Path("b.tar").exists()


def test_a_worker_that_is_killed_in_the_middle(new_cluster: NewCluster, data: Path) -> None:
    """While samples are scattered, and while shards are written."""
    cluster, spill = new_cluster(env=QUICK), Path("spill")
    for number, sign in enumerate(("data-*", "../../b-*.tar")):
        started = shuffled(cluster, env=QUICK, first=read_settings)
        assert happens(lambda sign=sign, started=started: [*spill.glob(f"*/{sign}")] or started.poll() is not None)
        assert started.poll() is None
        cluster.workers[number].kill()
        cluster.add()
        _, err = started.communicate(timeout=60)
        assert started.returncode == 0, err.decode()
        assert_same_shards(data)
        remove_shards()


def test_a_run_that_is_ended_or_killed(shared: Cluster, data: Path) -> None:
    spill = Path("spill")
    started = shuffled(shared)
    assert happens(lambda: [*spill.glob("*/data-*")])
    started.terminate()
    started.communicate(timeout=60)
    assert started.returncode == -signal.SIGTERM
    assert happens(lambda: not os.listdir("spill"))
    assert not [*Path().glob("b-*")]
    started = shuffled(shared)
    assert happens(lambda: [*spill.glob("*/data-*")])
    started.kill()
    started.communicate(timeout=60)
    (left,) = spill.iterdir()  # as the documents say
    assert left.name.startswith("tarkit-shuffle-")
    assert happens(lambda: (shutil.rmtree(left, ignore_errors=True), not left.exists())[1])  # tasks end meanwhile
    remove_shards()
    _, err = (again := shuffled(shared)).communicate(timeout=60)
    assert again.returncode == 0, err.decode()
    assert_same_shards(data)


@pytest.mark.parametrize("full", ["spill", "outputs"])
def test_a_full_disk(full: str, shared: Cluster, data: Path) -> None:
    with small_disk(3_000_000) as disk:
        spill, output = (disk, "b-%03d.tar") if full == "spill" else ("spill", disk / "b-%03d.tar")
        how = ("--dask", shared.address, "--spill", spill)
        ran = tarkit("shuffle", "in-*.tar", "--seed", "7", "-c", "20", "-o", output, *how, exit=1)
        assert "No space left on device" in ran.stderr.decode()
        assert happens(lambda: not os.listdir(disk))
    assert not [*Path().glob("b-*")]
    assert os.listdir("spill") == []


def test_the_simulation(here: Path) -> None:
    script = Path(__file__).parents[2] / "scripts" / "simulate"
    words = [sys.executable, script, "--scale", "0.001", "--workers", "1", "--dir", here]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    tasks = "{'scan': 10000, 'scatter': 7937, 'order': 625, 'keys': 625, 'write': 7906}, 27093 in all"
    for words in (f"tasks: {tasks}", "memory of the scheduler at most: ", "28 samples in 7 shards"):
        assert words in ran.stdout
