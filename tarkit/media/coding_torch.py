"""Decode and encode pth, the files of `torch.save`; with torch, which is imported at the first use.

Format: torch's notes on serialization. It is a pickle, of which `weights_only` loads tensors and plain values alone.
"""

from __future__ import annotations

import io
from typing import Any

from tarkit.errors import TarkitError, spell
from tarkit.media.libraries import media_library
from tarkit.media.limits import check_decoded


def decode(data: bytes, pickles: bool = False) -> Any:
    """Return the saved value, with tensors on the CPU. Raises TarkitError for a pickle of other objects.

    Raises TarkitError also for a compressed archive that is larger than a field may become.
    """
    import pickle
    import zipfile

    torch = media_library("torch", "pth")
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            check_decoded(sum(entry.file_size for entry in archive.infolist()), len(data))
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=not pickles)
    except pickle.UnpicklingError as error:
        if pickles:
            raise
        message = "it is damaged, or has other objects than tensors, numbers, str, list, tuple and dict"
        raise TarkitError(message, f"{spell('allow_pickle')} reads all objects, which can run any code") from error


def encode(name: str, value: Any, pickles: bool = False) -> bytes:
    """Return the bytes that `torch.save` writes. Raises TarkitError for objects that need pickles to be read."""
    file = io.BytesIO()
    media_library("torch", "pth", encode=True).save(value, file)
    data = file.getvalue()
    if not pickles:
        decode(data)  # the objects that weights_only takes are known to torch alone
    return data
