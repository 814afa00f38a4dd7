"""Decode the pictures of a batch behind the workers of a DataLoader, which pass bytes on: on a GPU or on all CPUs.

On a GPU torchvision decodes JPEG pictures, by nvJPEG of NVIDIA; those that simplejpeg would leave to Pillow, and other
formats, are decoded on the CPU and moved there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tarkit.decoding.jpeg import jpeg_size
from tarkit.decoding.picture import PictureDecoder
from tarkit.decoding.target import Crop, PicturePlan, middle, parse_target
from tarkit.errors import TarkitError, Usage
from tarkit.machine import cpus
from tarkit.media.coding import name_error
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
        short_side, size, crop: as for `tarkit.picture`. Crops at random follow from the random numbers of Python.

    Returns the batch with a tensor of uint8, pictures x 3 x height x width, on the device, or with a list of tensors
    where the pictures have several sizes. On a GPU all pixels are decoded, in levels that may differ by 1 or 2.

    Raises:
        MissingLibrary: torch, or for a GPU torchvision, is not installed.
        TarkitError: there is no GPU, or a picture cannot be decoded.
    """
    torch = media_library("torch", "batches of pictures")
    place = torch.device(device)
    if place.type not in ("cpu", "cuda"):
        raise Usage(f"device is 'cpu' or 'cuda', not {device!r}")
    if place.type == "cuda" and not torch.cuda.is_available():
        raise TarkitError(f"device={device!r} needs a GPU, and torch sees none", "device='cpu' decodes on all CPUs")
    data = [bytes(each) for each in batch[field]]
    decoder = PictureDecoder(FORM, parse_target(short_side, size, crop))
    try:
        plans = [decoder.plan(*_size(each), len(each)) for each in data]  # in turn, for the random numbers
        tensors = (_on_gpu if place.type == "cuda" else _on_cpus)(decoder, data, plans, place)
    except TarkitError:
        raise
    except Exception as error:
        raise name_error(field, "cannot be decoded", error) from error
    same = len({tuple(each.shape) for each in tensors}) == 1
    return {**batch, field: torch.stack(tensors) if same else tensors}


def _size(data: bytes) -> tuple[int, int]:
    if size := jpeg_size(data, "RGB"):
        return size
    image = open_image(data)
    return image.height, image.width


def _on_cpus(decoder: PictureDecoder, data: Sequence[bytes], plans: Sequence[PicturePlan], place: Any) -> list[Any]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(cpus()) as pool:  # decoders release the lock of Python
        return list(pool.map(lambda each, plan: decoder(each, plan.box), data, plans))


def _on_gpu(decoder: PictureDecoder, data: Sequence[bytes], plans: Sequence[PicturePlan], place: Any) -> list[Any]:
    torch, io = media_library("torch", "pictures"), media_library("torchvision.io", "JPEG on a GPU")
    plain = [index for index, each in enumerate(data) if jpeg_size(each, "RGB")]
    others = [index for index in range(len(data)) if index not in set(plain)]
    try:
        read = [torch.frombuffer(bytearray(data[index]), dtype=torch.uint8) for index in plain]
        found = io.decode_jpeg(read, mode="RGB", device=place) if read else []
    except RuntimeError:  # it names no picture: the CPU does
        plain, found, others = [], [], list(range(len(data)))
    tensors = {index: resized(each, plans[index]) for index, each in zip(plain, found, strict=True)}
    rest = _on_cpus(decoder, [data[index] for index in others], [plans[index] for index in others], place)
    tensors |= {index: each.to(place) for index, each in zip(others, rest, strict=True)}
    return [tensors[index] for index in range(len(data))]


def resized(tensor: Any, plan: PicturePlan) -> Any:
    """Return what a plan wants of a picture with all its pixels, 3 x height x width, on the device of the tensor."""
    interpolate = media_library("torch", "pictures as tensors").nn.functional.interpolate
    top, left, rows, columns = plan.box
    part = tensor[:, top : top + rows, left : left + columns]
    if plan.resized is None:
        return part
    result = interpolate(part[None].float(), plan.resized, mode="bilinear", antialias=True)[0]
    height, width = plan.shape
    top, left = middle(plan.resized[0], height), middle(plan.resized[1], width)
    return result[:, top : top + height, left : left + width].round().clamp(0, 255).to(tensor.dtype)
