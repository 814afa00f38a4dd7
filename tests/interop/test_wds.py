"""`tarkit.wds` beside webdataset: the same pipelines give the same samples; programs run with the import changed."""

from __future__ import annotations

import gzip
import pickle
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tarkit
from tarkit import wds
from tests._tools import each_row

numpy = pytest.importorskip("numpy")
image = pytest.importorskip("PIL.Image")
webdataset = pytest.importorskip("webdataset")

URLS = "s-{000..005}.tar"
Program = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write six shards of pictures, texts, classes and arrays."""
    monkeypatch.chdir(tmp_path)
    with tarkit.ShardWriter("s-%03d.tar", count=7) as out:
        for number in range(40):
            picture = image.new("RGB", (4, 3), (number, 0, 200))
            text = {"TXT" if number % 2 else "txt": f"text {number}"}
            arrays = {"input.npy": numpy.full(3, number), "output.npy": numpy.full(2, -number)}
            out.write(f"d/{number:03d}", {"png": picture, "cls": number % 3, "json": {"a": number}, **text, **arrays})


def plain(value: Any) -> Any:
    """Return a value that can be compared: arrays as lists with their type."""
    if isinstance(value, numpy.ndarray):
        return value.tolist(), str(value.dtype)
    if isinstance(value, image.Image):
        return value.mode, value.size, value.tobytes()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    return value


def patches(samples: Any) -> Any:
    """Yield two samples of each, as a function in a pipeline."""
    for sample in samples:
        yield sample
        yield {**sample, "__key__": sample["__key__"] + "b"}


def even(sample: Any) -> Any:
    return None if int(sample["cls"]) % 2 else {"cls": sample["cls"], "n": len(sample)}


def names(sample: Any) -> list[str]:
    """Return the names of fields in their order."""
    return [name for name in sample if not name.startswith("__")]


def mixed(library: Any) -> Any:
    sets = [library.WebDataset(f"s-00{number}.tar", shardshuffle=False) for number in range(2)]
    mix = library.RandomMix(sets, [1, 3], longest=True)
    random.seed(5)
    return mix


def files_of(library: Any) -> Any:
    """Return a stage of a program: files of shards, with what their names say."""
    module = library.tariterators

    def stage(shards: Any) -> Any:
        for file in module.tar_file_expander(module.url_opener(shards), eof_value=None):
            yield {**file, "parts": module.base_plus_ext(file["fname"]), "seed": library.utils.pytorch_worker_seed()}

    return stage


def whole(library: Any) -> Any:
    return library.WebDataset(URLS, shardshuffle=False)


@each_row(
    "program",
    [
        whole,
        lambda m: m.WebDataset(["s-001.tar", "s-000.tar"], shardshuffle=False, empty_check=False),
        lambda m: m.WebDataset(URLS, shardshuffle=4, seed=3).shuffle(10, seed=4).decode("rgb").to_tuple("png json;txt"),
        lambda m: m.WebDataset(URLS, shardshuffle=3, detshuffle=True, seed=2).repeat(2),
        lambda m: whole(m).decode().to_tuple("cls", "input.npy", "__key__").batched(6),
        lambda m: whole(m).decode("pil", only=["png", "cls"]).batched(5, partial=False).unbatched(),
        lambda m: whole(m).decode().map_dict(cls=lambda number: number + 1).rename(label="cls", pic="jpg;png"),
        lambda m: whole(m).rename(text="txt", keep=False),
        lambda m: whole(m).rename_keys(label="cls", pic="*ng"),
        lambda m: whole(m).decode(m.handle_extension("txt", len), "l8").to_tuple("txt", "png"),
        lambda m: whole(m).slice(3, 30, 2).select(lambda sample: sample["cls"] != b"1").map(even),
        lambda m: whole(m).decode().to_tuple("cls", "json").map_tuple(str, None).with_epoch(100),
        lambda m: whole(m).listed(7).unlisted(),
        lambda m: whole(m).repeat(1, nbatches=7),
        lambda m: whole(m).with_epoch(9).repeat(2, nbatches=50),
        lambda m: m.DataPipeline(
            m.SimpleShardList(URLS, seed=1),
            m.shuffle(100, seed=2),
            m.split_by_worker,
            m.tarfile_to_samples(),
            m.shuffle(1000, seed=1),
            m.decode("rgb8"),
            patches,
            m.shuffle(10, initial=3, seed=7),
            m.extract_keys("*.json", "png;jpg"),
        ),
        lambda m: m.DataPipeline(m.ResampledShards(URLS, nshards=9, deterministic=True), m.tarfile_to_samples()),
        lambda m: m.DataPipeline(
            m.SimpleShardList(URLS), files_of(m), lambda files: m.filters._shuffle(files, 9, 3, random.Random(2))
        ),
        lambda m: whole(m).to_tuple("__key__").batched(2.5),
        lambda m: m.WebDataset(URLS, shardshuffle=False, select_files=lambda name: name.endswith("cls")),
        lambda m: m.WebDataset(URLS, shardshuffle=False, select_files=lambda name: name.endswith(("TXT", "d/008.cls"))),
        lambda m: m.WebDataset(URLS, shardshuffle=False, rename_files=lambda name: name.replace("d/", "e/")),
        lambda m: m.WebDataset(URLS, shardshuffle=False, rename_files=str.upper).map(names),
        lambda m: m.WebDataset(URLS, shardshuffle=False, rename_files=lambda name: name.replace(".input", "_in")),
        lambda m: m.RoundRobin([m.WebDataset(f"s-00{number}.tar", shardshuffle=False) for number in (0, 5)]),
        lambda m: m.RoundRobin(
            [m.WebDataset(f"s-00{number}.tar", shardshuffle=False) for number in (0, 5)], longest=True
        ),
        mixed,
    ],
)
def test_the_same_samples(program: Program) -> None:
    """A pipeline of `tarkit.wds` gives the samples of the same pipeline of webdataset, in the same order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # webdataset's own
        theirs = plain(list(program(webdataset)))
    assert theirs
    assert plain(list(program(wds))) == theirs


def test_files_that_get_one_name() -> None:
    """Two files of a sample with the same new name are an error: none of them is dropped."""
    data = wds.WebDataset(URLS, shardshuffle=False, rename_files=lambda name: name.replace("input", "output"))
    with pytest.raises(tarkit.TarkitError, match=r"the sample 'd/000' has two fields 'output\.npy'"):
        list(data)


def test_workers_and_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards are divided by the variables of webdataset."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "WORKER": "1", "NUM_WORKERS": "2"}.items():
        monkeypatch.setenv(name, value)

    def program(library: ModuleType) -> list[str]:
        data = library.WebDataset(URLS, shardshuffle=False, nodesplitter=library.split_by_node)
        return [sample["__key__"] for sample in data]

    assert program(wds) == program(webdataset) == [f"d/{number:03d}" for number in range(21, 28)]
    with pytest.raises(tarkit.Usage, match="2 nodes would read the same shards"):
        list(wds.WebDataset(URLS))


def test_a_pipeline_is_pickled() -> None:
    """Workers that are spawned get the stages."""
    data = wds.WebDataset(URLS, shardshuffle=False).shuffle(5, seed=1).decode("rgb8").to_tuple("cls", "png").batched(4)
    assert plain(list(pickle.loads(pickle.dumps(data)))) == plain(list(data))


def test_handlers() -> None:
    """A damaged shard, or a field that cannot be decoded, is an error that a handler can pass over."""
    Path("s-002.tar").write_bytes(Path("s-002.tar").read_bytes()[:9000])
    with pytest.raises(tarkit.Problem, match=r"s-002\.tar: at"):
        list(wds.WebDataset(URLS))
    keys = [sample["__key__"] for sample in wds.WebDataset(URLS, handler=wds.ignore_and_continue)]
    assert {"d/013", "d/021", "d/039"} < set(keys)
    assert "d/020" not in keys
    assert [sample["__key__"] for sample in wds.WebDataset(URLS, handler=wds.ignore_and_stop)] == keys[
        : keys.index("d/021")
    ]
    with tarkit.TarWriter("bad.tar") as out:
        out.write({"__key__": "a", "json": b"{"})
        out.write({"__key__": "b", "json": b"{}"})
    with pytest.raises(tarkit.TarkitError, match="json"):
        list(wds.WebDataset("bad.tar").decode())
    with pytest.warns(UserWarning, match="json"):
        assert [sample["__key__"] for sample in wds.WebDataset("bad.tar").decode(handler=wds.warn_and_continue)] == [
            "b"
        ]
    with pytest.raises(tarkit.TarkitError, match="No such file"):
        list(wds.WebDataset("none.tar"))
    assert list(wds.WebDataset(["none.tar", "@#"], handler=wds.ignore_and_continue, empty_check=False)) == []


def test_writers() -> None:
    """Shards end where those of webdataset end, and have the same names and contents."""
    samples: list[dict[str, Any]] = [
        {"__key__": f"k{number:03d}", "__url__": "x", "txt": "t" * number, "cls": number, "json": {"n": number}}
        for number in range(30)
    ]
    pixels = numpy.random.default_rng(1).random((9, 8, 3))
    samples[5] |= {
        "jpg": pixels,
        "png": pixels.astype("float32"),
        "a.jpeg": image.fromarray((pixels * 255).astype("uint8")),
    }
    samples[6] |= {"pyd": {"a": (1, 2)}, "pickle": numpy.arange(3), "tif": pixels[:, :, 0]}
    written: list[list[Any]] = []
    for library, name in ((webdataset, "theirs"), (wds, "ours")):
        names: list[str] = []
        with library.ShardWriter(f"{name}-%02d.tar", maxcount=8, maxsize=120, post=names.append, verbose=0) as out:
            for sample in samples:
                out.write(dict(sample))
                if sample["cls"] in (3, 11):  # a shard ends early
                    (out.finish if sample["cls"] == 3 else out.next_stream)()
        assert out.total == 30
        written.append([[(s.key, dict(s)) for s in tarkit.open(shard, skip="all")] for shard in names])
    assert written[0] == written[1]
    assert len(written[0]) > 4
    sink = wds.TarWriter("one.tar", encoder=False)
    assert sink.write({"__key__": "a", "input.npy": b"12", "output.npy": b"3"}) == 3
    sink.close()
    assert [dict(sample) for sample in tarkit.open("one.tar")] == [{"input.npy": b"12", "output.npy": b"3"}]
    with wds.TarWriter("gz.tar") as out:
        out.write({"__key__": "a", "jpg": pixels, "b.jpg.gz": pixels})
    [zipped] = tarkit.open("gz.tar")
    assert gzip.decompress(zipped["b.jpg.gz"]) == zipped["jpg"]
    with pytest.raises(tarkit.TarkitError, match=r"^field 'a\.jpg': "), wds.TarWriter("x.tar") as out:
        out.write({"__key__": "a", "a.jpg": pixels * 9})
    with pytest.raises(tarkit.Usage, match="has no keep_meta"):
        wds.TarWriter("x.tar", keep_meta=True)


def test_the_first_interface() -> None:
    """The keywords of webdataset 0.1 make stages."""
    data = wds.WebDataset(URLS, extensions="png cls", decoder="rgb8", transforms=[lambda pixels: pixels.shape, None])
    assert list(data)[:2] == [((3, 4, 3), 0), ((3, 4, 3), 1)]
    [first, *_] = wds.WebDataset(URLS, shuffle=5, decoder="pil")
    assert first["png"].size == (4, 3)


def test_other_names() -> None:
    """A name of webdataset that is not here names another way; options of its own are lengths and epochs."""
    with pytest.raises(AttributeError, match=r"no attribute 'gopen': tarkit\.open reads all URLs"):
        wds.gopen()
    assert not hasattr(wds, "no_such_name")
    data = wds.WebDataset(URLS).with_length(7)
    assert len(data) == 7
    with pytest.raises(TypeError, match="no length"):
        len(wds.WebDataset(URLS))
