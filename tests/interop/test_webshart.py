"""webshart: its reader over index files of tarkit, and tarkit over index files of webshart."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

import tarkit
from tests.conftest import Run
from tests.interop._packages import needs, result

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def installed() -> None:
    """Skip tests where webshart is not there."""
    needs("webshart")


READ = """
import sys, webshart
found = webshart.discover_dataset(sys.argv[1])
rows = []
for shard in range(found.num_shards):
    reader = found.open_shard(shard)
    rows += [(name, bytes(reader.read_file(n))) for n, name in enumerate(reader.filenames())]
files = [(entry.path, bytes(entry.data)) for entry in webshart.TarDataLoader(found)]
print((sorted(rows), sorted(files)))
"""

EXTRACT = """
import os, sys, webshart
source, destination = map(os.path.abspath, sys.argv[1:])
webshart.MetadataExtractor().extract_metadata(
    source=source, destination=destination, checkpoint_dir=os.path.abspath("checkpoints"), max_workers=1
)
print(None)
"""

SAMPLES = """
import os, sys, webshart
found = webshart.discover_dataset(sys.argv[1])
loader = webshart.TarDataLoader(found)
if not hasattr(found, "probe_caption_layout"):  # before 0.6
    print(None)
    sys.exit()
rows = []
for shard in range(found.num_shards):
    for number in range(found.get_shard_sample_count(shard)):
        entry = loader.load_sample(shard, number)
        rows.append((entry.path, bytes(entry.data), entry.captions))
print(rows)
"""

DESCRIBE = """
import glob, os, sys, webshart
source = os.path.abspath(sys.argv[1])
webshart.MetadataExtractor().extract_metadata(
    source=source, destination=source, checkpoint_dir=os.path.abspath("checkpoints"), max_workers=1,
    include_image_geometry=True,
)
for path in glob.glob(source + "/*.json"):
    webshart.write_captions_to_metadata(path, {"d/0.png": ["one", "two"]})
print(None)
"""


def write_shards() -> list[tuple[str, bytes]]:
    """Write three shards with names of all kinds in a directory `s`; return names and contents of the fields."""
    os.mkdir("s")
    with tarkit.ShardWriter("s/s-%03d.tar", count=4) as out:
        for n in range(10):
            key = f"d.1/ß {n}" + "n" * (140 if n % 3 == 2 else 0)
            out.write(key, {"seg.bin": bytes(n), "bin": f"{n}".encode()})
    return [(f"{sample.key}.{name}", data) for sample in tarkit.open("s") for name, data in sample.items()]


def test_it_reads_by_an_index_of_tarkit(here: Path) -> None:
    """Its reader and its loader return the content of each field."""
    expected = sorted(write_shards())
    assert tarkit.index("s", "webshart") == [f"s/s-00{n}.json" for n in range(3)]
    read, loaded = result(READ, "s")
    assert read == expected
    assert loaded == expected


def test_tarkit_reads_by_its_index(run: Run) -> None:
    """What it extracts agrees with what `tarkit index` writes, in another order; `get` finds samples by it."""
    expected = write_shards()
    result(EXTRACT, "s", "s")
    assert tarkit.verify_index("s/*.tar", "webshart") == []
    theirs = {path.name: json.loads(path.read_text())["files"] for path in Path("s").glob("*.json")}
    for name, content in expected:
        assert run("get", name, "s").stdout == content
    os.mkdir("ours")
    tarkit.index("s/*.tar", "webshart", "ours/")
    for path, files in theirs.items():
        own = json.loads(Path("ours", path).read_text())["files"]
        assert own == {name: {"offset": each["offset"], "length": each["length"]} for name, each in files.items()}


def write_pictures() -> None:
    """Write two shards of pictures, each with a caption as text or in JSON, in a directory `s`."""
    os.mkdir("s")
    with tarkit.ShardWriter("s/s-%d.tar", count=3) as out:
        for n in range(6):
            caption = {"json": {"caption": f"c{n}"}} if n % 2 else {"txt": f"c{n}"}
            out.write(f"d/{n}", {"png": picture(10 + n, 20), **caption})


def picture(width: int, height: int) -> bytes:
    """Return a black PNG."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    image.new("L", (width, height)).save(out := io.BytesIO(), "PNG")
    return out.getvalue()


def test_its_samples_by_an_index_of_tarkit(here: Path) -> None:
    """A picture with text or JSON is one sample, which has its caption."""
    write_pictures()
    tarkit.index("s", "webshart")
    read = result(SAMPLES, "s")
    if read is None:
        pytest.skip("this webshart has no samples")
    assert read == [(f"d/{n}.png", picture(10 + n, 20), f"c{n}") for n in range(6)]


def test_an_index_with_sizes_and_captions(run: Run) -> None:
    """What it stores beside the places of fields does not disturb."""
    write_pictures()
    result(DESCRIBE, "s")
    first = json.loads(Path("s/s-0.json").read_text())["files"]["d/0.png"]
    assert (first["width"], first["height"], first["captions"]) == (10, 20, ["one", "two"])
    assert tarkit.verify_index("s/*.tar", "webshart") == []
    assert [run("get", f"d/{n}.png", "s").stdout for n in range(6)] == [picture(10 + n, 20) for n in range(6)]


@pytest.mark.parametrize("writer", ["theirs", "ours"])
def test_get_reads_a_few_headers_only(writer: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With either index the archive is not searched: a sample in the middle is found though one before is damaged."""
    os.mkdir("s")
    with tarkit.TarWriter("s/a.tar") as out:
        for n in range(200):
            out.write(f"{n:03}", {"bin": bytes(5000)})
    result(EXTRACT, "s", "s") if writer == "theirs" else tarkit.index("s/a.tar", "webshart")
    status = os.stat("s/a.tar")
    with open("s/a.tar", "r+b") as file:  # no header that is compared on the way
        file.seek(30 * (5120 + 512))
        file.write(b"\xff" * 512)
    os.utime("s/a.tar", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert run("get", "150.bin", "s/a.tar").stdout == bytes(5000)
    os.unlink("s/a.json")
    assert "bad-header" in run("get", "150.bin", "s/a.tar", exit=1).stderr
