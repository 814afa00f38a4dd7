"""Values of fields between tarkit and webdataset, both ways: each of its encoders, each of its decoders."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.media.coding import KINDS, PICKLED_KINDS
from tests._tools import each_row

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
webdataset = pytest.importorskip("webdataset")
autodecode = pytest.importorskip("webdataset.autodecode")
encoders = pytest.importorskip("webdataset.writer")
for _needed in ("msgpack", "cbor", "cbor2"):
    pytest.importorskip(_needed)

ARRAY = numpy.arange(6, dtype="float32").reshape(2, 3)
TREE = {"a": [1, 2.5, None, "é"], "b": {"c": True}}
PIXELS = numpy.arange(8 * 12 * 3, dtype="uint8").reshape(8, 12, 3)

VALUES: dict[str, Any] = {
    **dict.fromkeys(["cls", "cls2", "class", "count", "index", "inx"], 7),
    **dict.fromkeys(["txt", "text", "transcript", "html", "htm"], "aé\n"),
    **dict.fromkeys(["json", "jsn", "mp", "msgpack", "msg", "cbor"], TREE),
    **{name: {"a": {1}} for name in ("pyd", "pickle")},
    **{name: [ARRAY, ARRAY[0]] for name in ("ten", "tenbin", "tb")},
    "npy": ARRAY,
    "npz": {"a": ARRAY, "b": ARRAY[0]},
    **dict.fromkeys(["png", "ppm", "tiff", "tif"], PIXELS),
    "pgm": PIXELS[:, :, 0],
    **dict.fromkeys(["jpg", "jpeg", "img", "image"], numpy.full((8, 12, 3), 200, "uint8")),
    "left.json": TREE,
    "json.gz": TREE,
    "npy.gz": ARRAY,
    "deep.txt.gz": "text",
}
ELSEWHERE = {"id", "pth", "pbm"}  # bytes here; see `tests/media/test_torch.py`; a picture of one bit, below
BYTES_THERE = {"class", "count", "html", "htm", "tenbin", "msgpack", "img", "image"}  # it encodes them, no more
NOT_THERE = {"pgm"}  # its encoder raises KeyError for pgm, and for pbm


def same(found: Any, expected: Any) -> bool:
    """Return whether values are equal; pictures are compared as arrays."""
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, Mapping) and "b" in expected and not isinstance(expected["b"], Mapping):
        return list(found) == list(expected) and all(same(found[name], expected[name]) for name in expected)
    if isinstance(expected, numpy.ndarray):
        return found.shape == expected.shape and found.dtype == expected.dtype and numpy.array_equal(found, expected)
    return bool(found == expected)


def test_each_encoder_of_webdataset_has_a_row() -> None:
    """Each extension that webdataset encodes or decodes is one of ours, and in the table of this test."""
    theirs = {*encoders.default_handlers, *autodecode.decoders} - {"pkl"}
    ours = {name for kind in (*KINDS, *PICKLED_KINDS) for name in kind.fields.split()}
    assert theirs - ours == {"id"}
    assert theirs - set(VALUES) == ELSEWHERE


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Make a shard with a sample of all fields by webdataset, and the same by tarkit."""
    directory = tmp_path_factory.mktemp("shards")
    theirs, ours = str(directory / "theirs.tar"), str(directory / "ours.tar")
    with webdataset.TarWriter(theirs, encoder=True) as out:
        out.write({"__key__": "k", **{name: VALUES[name] for name in VALUES if name not in NOT_THERE}})
    with tarkit.TarWriter(ours) as writer:
        writer.write("k", {name: value for name, value in VALUES.items() if name not in ("pyd", "pickle")})
    return theirs, ours


@each_row("field", [name for name in VALUES if name not in NOT_THERE])
def test_what_webdataset_encodes(field: str, shards: tuple[str, str]) -> None:
    """We decode what its writer encodes, and write it back as it was."""
    sample = tarkit.open(shards[0], decode="rgb8", allow_pickle=True).head()[0]
    assert same(sample[field], VALUES[field])
    assert sample._encode_value(field, sample[field]) == sample.raw(field)


@each_row("field", [name for name in VALUES if name not in ("pyd", "pickle")])
def test_what_webdataset_decodes(field: str, shards: tuple[str, str]) -> None:
    """It decodes what we encode, where it has a decoder."""
    [sample] = webdataset.WebDataset(shards[1], shardshuffle=False).decode("rgb8")
    if field in BYTES_THERE:
        assert isinstance(sample[field], bytes)
        return
    value = numpy.repeat(VALUES[field][:, :, None], 3, 2) if field == "pgm" else VALUES[field]
    if field in ("jpg", "jpeg"):
        assert abs(sample[field].astype(int) - value).max() <= 1
    else:
        assert same(sample[field], value)


@each_row("field", [name for name in VALUES if name not in BYTES_THERE | NOT_THERE | {"jpg", "jpeg"}])
def test_both_decode_alike(field: str, shards: tuple[str, str]) -> None:
    """Both decode the same bytes to the same value."""
    [theirs] = webdataset.WebDataset(shards[0], shardshuffle=False).decode("rgb8")
    ours = tarkit.open(shards[0], decode="rgb8", allow_pickle=True).head()[0]
    assert same(ours[field], theirs[field])
    assert type(ours[field]) is type(theirs[field])


def test_differences(tmp_path: Path) -> None:
    """What the documentation lists as different."""
    name = str(tmp_path / "a.tar")
    with webdataset.TarWriter(name, encoder=True) as out:
        out.write({"__key__": "k", "id": 7, "cls": 3.5, "bin.gz": b"x", "u.ten": [numpy.array(5.0)]})
    sample = tarkit.open(name, decode=True).head()[0]
    assert sample["id"] == b"7"  # identifiers need not be numbers
    assert gzip.decompress(sample["bin.gz"]) == b"x"  # bytes stay as they are
    assert sample["u.ten"][0].shape == ()
    with pytest.raises(tarkit.TarkitError, match=r"'3[.]5' is not an integer"):
        sample["cls"]
    bits = Image.fromarray(numpy.eye(8, dtype="uint8") * 255).convert("1")
    with tarkit.TarWriter(name) as writer:
        writer.write("k", {"pbm": bits, "ten": [numpy.arange(3, dtype=">u4")]})
    sample = tarkit.open(name, decode="l8").head()[0]
    assert numpy.array_equal(sample["pbm"], numpy.eye(8, dtype="uint8") * 255)
    assert sample["ten"][0].tolist() == [0, 1, 2]
