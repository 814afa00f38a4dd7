"""Rows of options that several verbs share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tarkit.arguments import check_seconds, parse_processes
from tarkit.options import row
from tarkit.pipeline.output import written_path
from tarkit.stores.schemes import SCHEMES
from tarkit.streams.codecs.registry import CODECS

_WRITTEN = " ".join(f"{name}://" for name, scheme in SCHEMES.items() if scheme.writable)
WRITABLE = f"A URL is {_WRITTEN}, or another that fsspec can write."


def file_row(section: str, name: str, help: str) -> Any:
    """Return the row of a file that is written besides the output."""
    return row(section, name, metavar="FILE", help=help, role="side", parse=written_path)


def processes_row(section: str, help: str, default: int | None = 1, more: str = "") -> Any:
    """Return the row of the number of processes."""
    help = f"{help}; 0: one per CPU."
    return row(
        section,
        "-p",
        "--parallel",
        default=default,
        at_least=0,
        metavar="N",
        help=help,
        more=more,
        parse=parse_processes,
    )


def _check_time(mtime: int) -> int:
    check_seconds(mtime=mtime)
    return mtime


SET_MORE = (
    "FIELD:COLUMN, or json:{A,B} for an object of these columns. By default a column is the field of its name, a "
    "picture or a sound that of its format, and the number of a class cls."
)


def parse_set(words: str | Iterable[str]) -> str:
    """Return the words of --set as one text."""
    return " ".join([words] if isinstance(words, str) else words)


OUT_HELP = "File, URL, - or pipe:COMMAND.  [default: -]"
OUT: Any = row("Output", "-o", "--output", "--outputs", metavar="OUT", help=OUT_HELP, more=WRITABLE, role="output")
COMPRESS: Any = row(
    "Output",
    "--compress",
    metavar="CODEC[:LEVEL]",
    help=f"{' '.join(CODECS)} zip none.  [default: by suffix]",
    more="The level is a number, as in zst:19.",
)
FSYNC: Any = row(
    "Output", "--fsync", default=False, detail=True, help="Call fsync before renaming the file into place."
)
DEPFILE: Any = file_row("Output", "--depfile", "Write the dependencies to FILE, for make.")
MTIME: Any = row(
    "Output",
    "--mtime",
    default=0,
    metavar="WHEN",
    help="Entry times: source, now, @SECONDS.  [default: @0]",
    more="The modification time of new entries: that of their source, the present, or seconds since 1970.",
    parse=_check_time,
)
