"""Compressed streams: which codec is it, decode it, encode it. The one door; no codec library is loaded before its use.

`codecs_names` knows names, suffixes and magic bytes, `codecs_read` decodes, `codecs_write` encodes and `readahead`
moves any reader to a thread of its own.
"""

from __future__ import annotations

from tarkit.streams.codecs_names import (
    CODECS,
    Codec,
    codec_by_magic,
    codec_by_suffix,
    foreign_codec,
    legal_level,
    not_decoded,
    parse_spec,
)
from tarkit.streams.codecs_read import Decoder, decoder
from tarkit.streams.codecs_write import Encoder, deflate_library, encoder
from tarkit.streams.readahead import ReadAhead

__all__ = [
    "CODECS",
    "Codec",
    "Decoder",
    "Encoder",
    "ReadAhead",
    "codec_by_magic",
    "codec_by_suffix",
    "decoder",
    "deflate_library",
    "encoder",
    "foreign_codec",
    "legal_level",
    "not_decoded",
    "parse_spec",
]
