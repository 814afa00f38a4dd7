"""Decode the pictures of a batch behind the workers of a DataLoader, which pass bytes on: on a GPU or on all CPUs.

On a GPU torchvision or torchcodec decodes JPEG pictures, by nvJPEG of NVIDIA; unusual ones, and other formats, are
decoded on the CPU and moved there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

from tarkit.decoding.jpeg import as_stored, jpeg_size, torch_decoder
from tarkit.decoding.picture import PictureDecoder, resized
from tarkit.decoding.target import Crop, PicturePlan, parse_target
from tarkit.errors import MissingLibrary, TarkitError, Usage, show
from tarkit.machine import cpus
from tarkit.media.coding import error_text, name_error
from tarkit.media.coding_pictures import open_image
from tarkit.media.libraries import media_library

FORM = "torchrgb8"


def decode_batch(
    batch: Mapping[str, Any],
    field: str = "jpg",
    *,
    device: str = "cuda",
    short_side: int | None = None,
    size: int | tuple[int, int] | None = None,
    crop: Crop = None,
) -> dict[str, Any]:
    """Decode the pictures of a batch, which are bytes, on a device: a stage behind the workers of a DataLoader.

    Args:
        batch: a batch of samples, in which `field` is a list of bytes; it stays as it is.
        field: the field of the pictures.
        device: `"cuda"`, `"cuda:1"` and so on, or `"cpu"`, for all CPUs.
        short_side, size, crop: as for `tarkit.picture`. Random crops follow from Python's `random`.

    Returns the batch with a tensor of uint8, pictures x 3 x height x width, on the device, or with a list of tensors
    where the pictures have several sizes. On a GPU all pixels are decoded; values may differ by 1 or 2 of 255.

    Raises:
        MissingLibrary: torch, or for a GPU torchvision and torchcodec, is not installed.
        TarkitError: there is no GPU, or it decodes no JPEG, or a picture cannot be decoded; the error names its sample.
        RuntimeError: what torch raises for a GPU, as for one that has too little memory.
    """
    torch = media_library("torch", "batches of pictures")
    place = torch.device(device)
    if place.type not in ("cpu", "cuda"):
        raise Usage(f"device is 'cpu' or 'cuda', not {device!r}")
    if place.type == "cuda" and not torch.cuda.is_available():
        raise TarkitError(f"device={device!r} needs a GPU, and torch sees none", "device='cpu' decodes on all CPUs")
    pictures = _Pictures(batch, field, PictureDecoder(FORM, parse_target(short_side, size, crop)))
    tensors = pictures.on_gpu(place) if place.type == "cuda" else pictures.on_cpus(range(len(pictures.data)))
    same = len({tuple(each.shape) for each in tensors}) == 1
    return {**batch, field: torch.stack(tensors) if same else tensors}


class _Pictures:
    """The pictures of a batch, and what is done with each."""

    def __init__(self, batch: Mapping[str, Any], field: str, decoder: PictureDecoder) -> None:
        self._batch, self._field, self._decoder = batch, field, decoder
        self.data = [bytes(each) for each in batch[field]]
        self._plans = [self._of(index, self._plan) for index in range(len(self.data))]  # in turn, for random numbers

    def _plan(self, index: int) -> PicturePlan:
        data = self.data[index]
        if (size := jpeg_size(data, "RGB")) is None:
            image = open_image(data)
            size = image.height, image.width
        return self._decoder.plan(*size, len(data))

    def _of(self, index: int, function: Callable[[int], Any]) -> Any:
        """Return what a function returns for a picture. Raises TarkitError that names the sample."""
        try:
            return function(index)
        except MissingLibrary:
            raise
        except Exception as error:
            keys, named = self._batch.get("__key__"), name_error(self._field, "cannot be decoded", error)
            where = f"batch[{self._field!r}][{index}]" if keys is None else f"the sample {show(keys[index])}"
            raise TarkitError(f"{where}: {named}", named.hint) from error

    def on_cpus(self, indices: Sequence[int]) -> list[Any]:
        """Return tensors of some of the pictures."""
        from concurrent.futures import ThreadPoolExecutor

        def decoded(index: int) -> Any:
            return self._decoder(self.data[index], self._plans[index].box)

        with ThreadPoolExecutor(cpus()) as pool:  # decoders release the lock of Python
            return list(pool.map(lambda index: self._of(index, decoded), indices))

    def on_gpu(self, place: Any) -> list[Any]:
        """Return tensors on a GPU. Raises TarkitError if it decodes no JPEG, and what torch raises for its errors."""
        plain = [index for index, each in enumerate(self.data) if jpeg_size(each, "RGB")]
        found = _decoded([self.data[index] for index in plain], place)
        if found is None:
            plain, found = [], []
        tensors = {index: cut_out(each, self._plans[index]) for index, each in zip(plain, found, strict=True)}
        others = [index for index in range(len(self.data)) if index not in tensors]
        tensors |= {index: each.to(place) for index, each in zip(others, self.on_cpus(others), strict=True)}
        return [tensors[index] for index in range(len(self.data))]


def _decoded(pictures: Sequence[bytes], place: Any) -> list[Any] | None:
    """Return JPEG pictures that a GPU decodes; None if one of them is damaged, which the library does not name.

    Raises TarkitError if it does not decode a picture that is whole either.
    """
    torch, decode = media_library("torch", "pictures"), torch_decoder()
    if not pictures:
        return []
    try:
        return list(decode([as_stored(each) for each in pictures], mode="RGB", device=place))
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        whole = BytesIO()
        media_library("PIL.Image", "pictures").new("RGB", (16, 16)).save(whole, "JPEG")
        if pictures != [whole.getvalue()] and _decoded([whole.getvalue()], place) is not None:
            return None
        words = f"{decode.__module__.partition('.')[0]} decodes no JPEG on {place}: {error_text(error)}"
        raise TarkitError(words, "install one with nvJPEG; device='cpu' decodes on all CPUs") from error


def cut_out(tensor: Any, plan: PicturePlan) -> Any:
    """Return what a plan wants of a picture with all its pixels, 3 x height x width, on the device of the tensor."""
    top, left, rows, columns = plan.box
    part = tensor[:, top : top + rows, left : left + columns]
    return part if plan.resized is None else resized(part.float(), plan)  # GPUs resize no uint8
