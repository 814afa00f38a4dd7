"""Compressed streams: which codec is it, decode it, encode it. The one door; no codec library is loaded before its use.

`registry` knows names, suffixes and magic bytes, `decode` decodes and `encode` encodes.
"""

from __future__ import annotations

from tarkit.streams.codecs.decode import Decoder, decoder
from tarkit.streams.codecs.encode import Encoder, deflate_library, encoder
from tarkit.streams.codecs.registry import (
    CODECS,
    Codec,
    codec_by_magic,
    codec_by_suffix,
    foreign_codec,
    legal_level,
    not_decoded,
    parse_spec,
)

__all__ = [
    "CODECS",
    "Codec",
    "Decoder",
    "Encoder",
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
