"""Decode and encode sound with soundfile: a numpy array, frames x channels, and the number of frames a second.

Sources: the documentation of soundfile, and that of libsndfile for the formats and types of samples.
"""

from __future__ import annotations

import io
from typing import Any

from tarkit.errors import TarkitError
from tarkit.media.coding_arrays import refuse_mask
from tarkit.media.libraries import media_library
from tarkit.media.limits import check_decoded
from tarkit.media.whole_sound import open_sound
from tarkit.sizes import plural

_FORMATS = {"wav": "WAV", "flac": "FLAC", "mp3": "MP3"}
_TYPES = {
    "wav": {"float32": "FLOAT", "int16": "PCM_16", "int32": "PCM_32"},
    "flac": {"float32": "PCM_24", "int16": "PCM_16"},
    "mp3": {"float32": "MPEG_LAYER_III", "int16": "MPEG_LAYER_III"},
}


def _libraries(encode: bool) -> tuple[Any, Any]:
    numpy = media_library("numpy", "sound", encode=encode, extra="sound")
    return numpy, media_library("soundfile", "sound", encode=encode)


def decode(data: bytes) -> tuple[Any, int]:
    """Return an array of float32, frames x channels, with values from -1 to 1, and the number of frames a second.

    Raises TarkitError for a sound that is cut off.
    """
    _libraries(encode=False)
    with open_sound(data) as sound:
        check_decoded(4 * sound.frames * sound.channels, len(data))
        return sound.read(dtype="float32", always_2d=True), int(sound.samplerate)


def encode(name: str, value: Any) -> bytes:
    """Return the bytes of an array and its rate, in the format with the extension `name`.

    wav keeps float32, int16 and int32 as they are. flac has 24 bits for float32, and 16 for int16. mp3 is lossy.
    float64 is rounded to float32.

    Raises:
        TarkitError: another value; ogg, which has a random number in it, so that its bytes would differ each time.
    """
    numpy, soundfile = _libraries(encode=True)
    if name not in _FORMATS:
        raise TarkitError(f"{name} is not written, since its bytes would differ each time", "write wav, flac or bytes")
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not isinstance(value[0], numpy.ndarray):
        raise TarkitError("it takes an array and a rate: (array of frames x channels, 44100)")
    samples, rate = value
    refuse_mask(samples)
    if samples.dtype == numpy.float64:
        samples = samples.astype(numpy.float32)
    types = _TYPES[name]
    if str(samples.dtype) not in types or samples.ndim not in (1, 2):
        raise TarkitError(
            f"an array of {samples.dtype} with {plural(samples.ndim, 'dimension')} is not sound for {name}"
        )
    if type(rate) is bool or not hasattr(type(rate), "__index__") or rate < 1:
        raise TarkitError(f"the rate is a number of frames a second, not {rate!r}")
    if samples.dtype == numpy.float32 and samples.size and not abs(samples).max() <= 1:
        raise TarkitError("values of sound must be from -1 to 1: programs cut off others", "divide by the largest")
    file = io.BytesIO()
    soundfile.write(file, samples, rate.__index__(), format=_FORMATS[name], subtype=types[str(samples.dtype)])
    return _without_time(file.getvalue())


def _without_time(data: bytes) -> bytes:
    """Return a wav without the time in its chunk PEAK, so that the same sound gives the same bytes."""
    at = data.find(b"PEAK", 0, 100) if data.startswith(b"RIFF") else -1
    return data if at < 0 else data[: at + 12] + bytes(4) + data[at + 16 :]
