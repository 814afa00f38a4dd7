"""Decoded datasets and samples: `tarkit.open(decode=)`, `Dataset.decode` and `Sample.decode`."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tests._tools import each_row

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")


def jpeg(size: tuple[int, int] = (20, 10)) -> bytes:
    """Return a picture that is not the same after it was decoded and encoded once more."""
    file = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(file, "JPEG", quality=50)
    return file.getvalue()


@pytest.fixture(autouse=True)
def shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a shard of three samples in the current directory."""
    monkeypatch.chdir(tmp_path)
    with tarkit.TarWriter("a.tar") as out:
        for number in range(3):
            fields = {"jpg": jpeg(), "cls": b"%d\n" % number, "json.gz": {"a": number}, "bin": b"\xff"}
            out.write(f"k{number}", fields)
    return tmp_path / "a.tar"


def test_values_of_a_sample() -> None:
    """Values are decoded when they are looked up, once, by the names of fields in any case; `raw` has the bytes."""
    [sample, *_] = tarkit.open("a.tar", decode=True)
    assert isinstance(sample, tarkit.DecodedSample)
    assert repr(sample) == "<tarkit.DecodedSample 'k0': jpg, cls, json.gz, bin>"
    assert sample["jpg"].size == (20, 10)
    assert sample["jpg"] is sample["JPG"]
    assert (sample["cls"], sample["json.gz"], sample["bin"]) == (0, {"a": 0}, b"\xff")
    assert sample.raw("CLS") == b"0\n"
    assert gzip.decompress(sample.raw("json.gz")) == b'{"a": 0}'
    assert list(dict(sample)) == list(sample) == ["jpg", "cls", "json.gz", "bin"]
    assert [*sample.values()][1:] == [0, {"a": 0}, b"\xff"]
    assert dict(sample.items())["cls"] == 0
    assert sample.get("txt") is None
    with pytest.raises(KeyError, match="no such field; the sample k0 has jpg, cls"):
        sample["txt"]


def test_each_way_to_a_sample() -> None:
    """All steps keep the decoding; `head`, `get` and `indexed` have it too, and a stream."""
    data = tarkit.open("a.tar").decode("rgb8")
    assert [sample["cls"] for sample in data] == [0, 1, 2]
    assert data.where("cls == 1").select("cls jpg").rekey("x{key}").head()[0]["jpg"].shape == (10, 20, 3)
    assert data.shuffle(seed=1).sort(by="cls", reverse=True).head()[0]["cls"] == 2
    assert data.get("k2")["cls"] == 2
    indexed = data.indexed()
    assert [indexed["k1"]["cls"], indexed[-1]["cls"], *(each["cls"] for each in indexed[:2])] == [1, 2, 0, 1]
    assert [sample["cls"] for sample in indexed] == [0, 1, 2]
    data.write("a.tar.gz")
    assert [sample["cls"] for sample in tarkit.open("a.tar.gz", decode=True)] == [0, 1, 2]
    assert [sample["cls"] for sample in data.decode({"cls": float})] == [0.0, 1.0, 2.0]
    assert repr(data.select("cls")) == "<tarkit.DecodedDataset of 1 input: select>"


def test_what_is_written_stays_as_it_is(shard: Path) -> None:
    """`write` and `split` copy the bytes; a writer that gets a decoded sample writes its bytes."""
    data = tarkit.open("a.tar", decode=True)
    data.write("b.tar")
    data.split("c-%d.tar", count=3)
    with tarkit.TarWriter("d.tar") as out:
        for sample in data:
            sample["jpg"].load()
            out.write(sample.key, sample)
    for name in ("b.tar", "c-0.tar", "d.tar"):
        assert Path(name).read_bytes() == shard.read_bytes()


@pytest.mark.forks
@each_row("processes", [1, 2])
@each_row("how", [True, "pil", "rgb", "rgba8", "l8", {"jpg": len}, {"*": None}])
def test_map(how: Any, processes: int) -> None:
    """The function of `map` gets values; what it returns as it was keeps its bytes, also under another name."""

    def changed(sample: tarkit.DecodedSample) -> dict[str, Any]:
        return {**sample, "left.jpg": sample["jpg"], "n.cls": int(sample["cls"]) + 1}

    if how == {"jpg": len}:
        kept = tarkit.open("a.tar").decode(how).map(lambda sample: {**sample, "jpg": sample.raw("jpg")})
        assert [dict(sample)["jpg"] for sample in map(_plain, kept)] == [jpeg()] * 3
        return
    made = [_plain(each) for each in tarkit.open("a.tar").decode(how).map(changed, processes=processes)]
    for number, sample in enumerate(made):
        assert sample["jpg"] == sample["left.jpg"] == jpeg()
        assert (sample["cls"], sample["n.cls"]) == (b"%d\n" % number, b"%d" % (number + 1))
        assert gzip.decompress(sample["json.gz"]) == b'{"a": %d}' % number


def _plain(sample: tarkit.Sample) -> dict[str, bytes]:
    """Return the bytes of the fields of a decoded sample."""
    assert isinstance(sample, tarkit.DecodedSample)
    return {name: sample.raw(name) for name in sample}


def test_map_with_values_changed_in_place() -> None:
    """A value that was changed in place is encoded anew."""

    def changed(sample: tarkit.DecodedSample) -> tarkit.DecodedSample:
        sample["json.gz"]["a"] = "new"
        sample["jpg"].paste((0, 0, 0), (0, 0, 20, 10))
        return sample

    sample = tarkit.open("a.tar", decode=True).map(changed).head()[0]
    assert sample["json.gz"] == {"a": "new"}
    assert sample["jpg"].getextrema() == ((0, 0),) * 3
    assert sample.raw("cls") == b"0\n"


def test_one_field_of_a_plain_sample() -> None:
    sample = tarkit.open("a.tar").head()[0]
    assert sample.decode("cls") == 0
    assert sample.decode("jpg", "l8").shape == (10, 20)
    assert sample.decode("jpg", {"jpg": len}) == len(jpeg())
    with pytest.raises(KeyError):
        sample.decode("txt")


def test_errors_name_the_sample() -> None:
    """An error of decoding names archive, sample and field, and comes with the field alone."""
    with tarkit.TarWriter("bad.tar") as out:
        out.write("k", {"jpg": b"no picture", "cls": b"x", "txt": b"good", "png": jpeg()[:300]})
    [sample] = tarkit.open("bad.tar", decode=True)
    assert sample["txt"] == "good"
    with pytest.raises(tarkit.TarkitError, match=r"^bad[.]tar: at 0: 'k': field 'cls': 'x' is not an integer"):
        sample["cls"]
    with pytest.raises(tarkit.TarkitError, match=r"^bad[.]tar: at 0: 'k': field 'jpg' cannot be decoded: Unidentified"):
        sample["jpg"]
    with pytest.raises(tarkit.TarkitError, match="field 'png' cannot be decoded: OSError: "):
        sample["png"]
    [sample] = tarkit.open("bad.tar").decode({"cls": lambda data: 1 // 0})
    with pytest.raises(tarkit.TarkitError, match="field 'cls' cannot be decoded: ZeroDivisionError") as raised:
        sample["cls"]
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_pickles_on_request() -> None:
    """Pickles are bytes unless they are allowed; one of another program that did not change keeps its bytes."""
    pickled = pickle.dumps({1, 2}, protocol=2)
    with tarkit.TarWriter("p.tar") as out:
        out.write("k", {"pyd": pickled})
    assert pickle.loads(tarkit.open("p.tar", decode=True).head()[0]["pyd"]) == {1, 2}
    data = tarkit.open("p.tar", decode=True, allow_pickle=True)
    assert data.head()[0]["pyd"] == {1, 2}
    assert data.map(dict).head()[0].raw("pyd") == pickled
    assert tarkit.open("p.tar").head()[0].decode("pyd", allow_pickle=True) == {1, 2}


def test_mixes_have_bytes() -> None:
    """A mix of decoded datasets has bytes, and can be decoded."""
    data = tarkit.open("a.tar", decode=True)
    mixed = tarkit.mix([(data, 1)], seed=1)
    assert {sample["cls"] for sample in mixed} == {b"0\n", b"1\n", b"2\n"}
    assert {sample["cls"] for sample in mixed.decode()} == {0, 1, 2}
    assert json.loads(json.dumps([sample["json.gz"] for sample in mixed.decode()]))


def test_writers_of_pickles() -> None:
    """Pickles are written only where that is allowed; a map over decoded pickles keeps and changes them."""
    with tarkit.TarWriter("p.tar", allow_pickle=True) as out:
        out.write("k", {"pkl": {1, 2}, "npy": numpy.array([{}])})
    with pytest.raises(TypeError, match="set has no encoding here"), tarkit.TarWriter("q.tar") as out:
        out.write("k", {"pkl": {1, 2}})
    data = tarkit.open("p.tar", decode=True, allow_pickle=True)
    assert data.head()[0]["pkl"] == {1, 2}
    same = data.map(lambda sample: {**sample}).head()[0]
    assert same.raw("pkl") == data.head()[0].raw("pkl")
    assert data.map(lambda sample: {"pkl": {*sample["pkl"], 3}}).head()[0]["pkl"] == {1, 2, 3}
    with tarkit.ShardWriter("r-%d.tar", count=1, allow_pickle=True) as shards:
        shards.write("k", {"pyd.gz": [{1}]})
    assert tarkit.open("r-0.tar", decode=True, allow_pickle=True).head()[0]["pyd.gz"] == [{1}]


def test_copies_in_other_processes() -> None:
    """A decoded dataset, and its index, can be pickled."""
    data = pickle.loads(pickle.dumps(tarkit.open("a.tar", decode="rgb8").select("cls jpg")))
    assert [(sample["cls"], sample["jpg"].shape) for sample in data] == [
        (0, (10, 20, 3)),
        (1, (10, 20, 3)),
        (2, (10, 20, 3)),
    ]
    indexed = pickle.loads(pickle.dumps(tarkit.open("a.tar", decode={"cls": float}).indexed()))
    assert isinstance(indexed, tarkit.DecodedIndex)
    assert [indexed[2]["cls"], indexed["k1"]["cls"]] == [2.0, 1.0]


@pytest.mark.parametrize("form", [True, "rgb8", "rgb", "pil"])
def test_half_a_picture(form: Any) -> None:
    """It is a problem of the dataset; the loader leaves its sample out if the dataset says so."""
    with tarkit.TarWriter("b.tar") as out:
        out.write("good", {"jpg": jpeg()})
        out.write("half", {"jpg": jpeg((200, 100))[:-300]})
    data = tarkit.open("b.tar", decode=form, skip=["bad-field"])
    with pytest.raises(tarkit.Problem, match=r"b\.tar: at 1536: 'half': field 'jpg'.*\[bad-field\]"):
        [dict(sample.items()) for sample in data]
    with pytest.warns(tarkit.TarkitWarning, match=r"'half': field 'jpg'.*\[bad-field\]"):
        assert [sample["__key__"] for sample in tarkit.loader(data)] == ["good"]


def test_map_takes_no_form_of_pictures() -> None:
    """It would be taken for True; the hint says what gives other forms."""
    for how in ("rgb8", "nonsense", {"jpg": len}, None, 1):
        with pytest.raises(tarkit.Usage, match=r"map takes True[^$]*hint: .*tarkit.open\(..., decode="):
            tarkit.open("a.tar").map(dict, decode=how)  # type: ignore[arg-type]
    found = tarkit.open("a.tar", decode="rgb8").map(lambda sample: {"shape.json": list(sample["jpg"].shape)})
    assert found.decode().head()[0]["shape.json"] == [10, 20, 3]


def test_a_field_with_another_name() -> None:
    """It is decoded by its new name, or by a rule for that."""
    data = tarkit.open("a.tar", decode=True).select("label:cls")
    assert data.head()[0]["label"] == b"0\n"
    assert data.decode({"label": int}).head()[0]["label"] == 0
