"""A view of all samples of shards as their index: the rows that `cat -o NAME.view.parquet` writes."""

from __future__ import annotations

from collections.abc import Sequence

from tarkit.errors import TarkitError, Usage, spell
from tarkit.indexing.files import IndexFile
from tarkit.pipeline.archive import write_archive
from tarkit.pipeline.chain import Archives, Chain
from tarkit.pipeline.output import Output
from tarkit.pipeline.run import Run
from tarkit.streams.location import Location, is_view

NAME = "all.view.parquet"


def check_view(file: IndexFile, force: bool) -> None:
    """Raise TarkitError for a file that would not be read as a view, or would replace another file than a view."""
    location = Location("url" if file.kind == "url" else "path", file.path, file.name, options=file.options)
    if file.kind not in ("path", "url") or not is_view(location):
        raise Usage(f"{file.name}: the name of a view ends in .parquet", f"{spell('output', NAME)}")
    if force or not file.exists():
        return
    from tarkit.pipeline.view_rows import view_file

    try:
        view_file(location)
    except TarkitError:
        kind = "object" if file.kind == "url" else "file"
        message = f"{file.name}: the {kind} exists and is not a view"
        raise TarkitError(message, f"{spell('force')} replaces it") from None


def write_view(file: IndexFile, shards: Sequence[Location], run: Run, sync: bool) -> None:
    """Write the view of shards, whose samples and problems count for `run`."""
    output = Output.from_argument(file.path, None, sync, options=file.options)
    write_archive(Chain(Archives(tuple(shards)), lambda: run), output, run)
