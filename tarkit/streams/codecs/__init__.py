"""Compressed streams. `registry` has the table of codecs and how to add one, `decode` decodes, `encode` encodes.

Other packages import from here. A codec's library is imported when it is first used.
"""

from __future__ import annotations

from tarkit.streams.codecs.decode import CUT, Decoder, decoder
from tarkit.streams.codecs.encode import Encoder, deflate_library, encoder
from tarkit.streams.codecs.registry import (
    CODECS,
    FORMAT_ALIASES,
    MESSAGES,
    Codec,
    codec_by_magic,
    codec_by_suffix,
    foreign_codec,
    legal_level,
    message_format,
    message_format_by_suffix,
    mistaken_suffix,
    not_decoded,
    parse_spec,
)

__all__ = [
    "CODECS",
    "CUT",
    "FORMAT_ALIASES",
    "MESSAGES",
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
    "message_format",
    "message_format_by_suffix",
    "mistaken_suffix",
    "not_decoded",
    "parse_spec",
]
