"""The names of the shards of a directory tree, from the words of the user to templates; what existing shards hold."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tarkit.errors import Problem, TarkitError, Usage, spell
from tarkit.packing.files import is_remote
from tarkit.pipeline.output import Output, archives_output
from tarkit.pipeline.run import Run
from tarkit.pipeline.template import ShardTemplate, parse_template, refuse_existing
from tarkit.problems import Policy
from tarkit.samples.dataset import DatasetReader
from tarkit.shards.rows import MapOptions
from tarkit.stores.schemes import scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.streams.codecs import codec_by_suffix
from tarkit.streams.location import ARCHIVE_SUFFIXES, parse_output

if TYPE_CHECKING:
    from tarkit.shards.categories import Map

DEFAULT_NAME = "shard-%06d"


def shard_output(text: str, compress: str | None, fsync: bool, storage: StoreOptions | None) -> Output:
    """Return how shards of these names are written. Raises Usage for stdout."""
    if text == "-":
        hint = f"name them with {spell('output')} 'out-%06d.tar'"
        raise Usage("shard writes numbered files, not stdout", hint)
    return archives_output(text, compress, fsync, options=storage)


def find_templates(
    run: Run, text: str, output: Output, categories: MapOptions, storage: StoreOptions | None
) -> tuple[list[ShardTemplate], Map | None]:
    """Return the template of each category, and the map; without a map there is one template. Raises Usage.

    Args:
        run: the map is a file that it reads.
        text: a template or a directory, with categories a directory.
        output: how shards are written.
        categories: the map.
        storage: how its file is reached.
    """
    if categories.map is None:
        return [_template(text, output)], None
    directory = text.removeprefix("file:")
    if directory in (DEFAULT_NAME, "."):
        directory = ""
    elif not (directory.endswith("/") or os.path.isdir(directory)):
        option = spell("template")
        message = f"with {spell('map')}, {option} is the directory of the shards: the map has their names"
        raise Usage(message, f"for example {option} out/")
    directory += "/" if directory and not directory.endswith("/") else ""
    try:
        category_map = categories.read(run, directory, storage=storage)
    except TarkitError as error:
        raise Usage(str(error), error.hint) from None
    return [category.template for category in category_map.categories], category_map


def _template(text: str, output: Output) -> ShardTemplate:
    if text.endswith("/") or os.path.isdir(text.removeprefix("file:")):
        text = text.rstrip("/") + "/" + DEFAULT_NAME
    if output.location.kind not in ("path", "url"):
        hint = f"{spell('post')} runs a command for each: {spell('post', 'scp {} host: && rm {}')}"
        raise Usage("shards are files or objects", hint)
    return parse_template(with_suffix(text))


def with_suffix(text: str) -> str:
    """Return a template with the suffix .tar, unless it has one of archives."""
    has_suffix = text.lower().endswith(ARCHIVE_SUFFIXES) or codec_by_suffix(text)
    return text if has_suffix or text.strip() in ("", "*") else text + ".tar"


# ---- Files that a run writes into the directory that it packs: no shard may contain itself, or its plan

Test = Callable[[bytes], bool]

_PART = re.compile(rb"\.(.+?)\.[0-9]+(?:\.[0-9]+)?\.part", re.DOTALL)


def hidden(root: str, templates: Iterable[ShardTemplate], files: Iterable[str | None]) -> dict[bytes, Test]:
    """Return tests for base names of written files, by directory below `root`: shards of any index, and other files."""
    remote = is_remote(root)
    top = root if remote else os.path.realpath(root)
    front = top.rstrip("/") + "/"
    tests: dict[bytes, list[Test]] = {}

    def below(directory: str) -> bytes | None:
        if remote or scheme_of(directory):
            path = directory.rstrip("/") + "/"
            return os.fsencode(path[len(front) :]) if path.startswith(front) else None
        path = os.path.realpath(directory or ".")
        if path == top:
            return b""
        return os.fsencode(path[len(front) :]) + b"/" if path.startswith(front) else None

    for template in templates:
        where = below(template.directory)
        if where is not None:
            tests.setdefault(where, []).append(_is_named(template))
    for path in files:
        where = None if path in (None, "-") else below(os.path.dirname(path or ""))
        if where is not None:
            tests.setdefault(where, []).append(os.fsencode(os.path.basename(path or "")).__eq__)
    return {where: _any(of_names) for where, of_names in tests.items()}


def _is_named(template: ShardTemplate) -> Test:
    def named(base: bytes) -> bool:
        part = _PART.fullmatch(base)  # left by a run that was killed
        return template.matches(template.directory + os.fsdecode(part[1] if part else base)) is not None

    return named


def _any(tests: Sequence[Test]) -> Test:
    return lambda base: any(test(base) for test in tests)


def check_templates(templates: Sequence[ShardTemplate], allowed: bool, storage: StoreOptions | None) -> None:
    """Raise TarkitError for existing shards unless they are allowed, FileNotFoundError for a missing directory: before
    a tree is listed."""
    for template in templates:
        if template.directory and not scheme_of(template.directory) and not os.path.isdir(template.directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), template.name(0))
        if not allowed:
            resume, more, force = map(spell, ("resume", "update", "force"))
            hint = f"{resume} keeps those that are as planned, {more} packs what is new, {force} replaces them"
            refuse_existing([path for _, path in template.existing(storage)], hint)


# ---- The entries of existing shards, for --update

_APART = ("repeated-key", "joined-sample", "scattered-sample", "duplicate-entry")  # irrelevant to names


def next_shards(
    templates: Sequence[ShardTemplate], tmpdir: str | None, storage: StoreOptions | None = None
) -> tuple[list[int], dict[bytes, int]]:
    """Return the index of each template's next shard, and the entries of existing shards with their sizes.

    Raises:
        Problem: a shard cannot be read.
        TarkitError: a shard was compressed since it was written: under its new name it would not count.
    """
    existing = [template.existing(storage) for template in templates]
    for template in templates:
        _refuse_compressed(template, storage)
    try:
        sizes = entries_of([path for shards in existing for _, path in shards], tmpdir, storage)
    except Problem as problem:
        words = f"{spell('update')} reads the entries of each shard"
        problem.hint = f"{words}: repair it with check --fix, or write it again"
        raise
    return [shards[-1][0] + 1 if shards else 0 for shards in existing], sizes


def _refuse_compressed(template: ShardTemplate, storage: StoreOptions | None) -> None:
    for path in template.neighbours(storage):
        base = path[len(template.directory) :]
        if (
            codec_by_suffix(base)
            and template.matches(path) is None
            and template.matches(path.rpartition(".")[0]) is not None
        ):
            message = f"{path}: {spell('update')} cannot read a shard that was compressed"
            raise TarkitError(message, "use the present names of the shards, or move it away")


def entries_of(shards: Sequence[str], tmpdir: str | None, storage: StoreOptions | None = None) -> dict[bytes, int]:
    """Return the names of the entries in shards, with bytes of content; about 150 bytes of memory each.

    Raises Problem for a shard that cannot be read.
    """
    sizes: dict[bytes, int] = {}
    if not shards:
        return sizes
    inputs = DatasetReader([parse_output(path, storage) for path in shards], Policy(_APART), tmpdir=tmpdir)
    for sample in inputs:
        sample.complete()
        sizes.update((entry[0], entry[3]) for entry in sample.raw)
    return sizes
