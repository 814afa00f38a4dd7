"""`--emit`: a command line that runs jobs becomes a script for another engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from tarkit.errors import Usage, show, spell
from tarkit.jobs.emit import JobArray, k8s_job, makefile, parse_engine, slurm_script
from tarkit.jobs.options import JobOptions
from tarkit.stores.schemes import refuse_url, scheme_of
from tarkit.streams.braces import expand_braces
from tarkit.streams.location import expand_lists

if TYPE_CHECKING:
    from tarkit.jobs.job import ValueJob


class ValueWords(NamedTuple):
    """The words of a command line that name the values of its jobs, for a script.

    Attributes:
        lists: the lists of arguments, of `-T`.
        nul: whether the names in lists end with NUL.
        texts: what they name now.
        expand: returns what arguments and lists name.
        before, after: the other words of the command line, without options that all commands and all runs of jobs have.
    """

    words: Sequence[str]
    lists: Sequence[str]
    nul: bool
    texts: list[str]
    expand: Callable[[Sequence[str], Sequence[str]], list[str]]
    before: Sequence[str] = ()
    after: Sequence[str] = ()


def _fixed(values: ValueWords) -> list[str]:
    """Return options and words that name these values, wherever and whenever they are read.

    What a glob or a directory finds is named, and what a list has that is no file, or that has globs itself.

    Raises:
        Usage: the values cannot be named so.
    """
    words, named = [], 0
    for word in values.words:
        names = values.expand([word], [])
        named += len(names)
        words += [word] if names == _names(word) else names
    lists = values.lists if _fixed_lists(values) == values.texts[named:] else ()
    if values.lists and not lists:
        words += values.texts[named:]
    for word in words:
        if word.startswith("-") or not word:
            raise Usage(f"{show(word)}: a command line cannot have this value", _REPAIR)
    if values.expand(words, lists) != values.texts:
        raise Usage("the values would be others where the script runs", _REPAIR)
    options = [word for name in lists for word in ("--files-from", name)]
    return [*options, *(["--null"] if lists and values.nul else []), *words]


def _fixed_lists(values: ValueWords) -> list[str] | None:
    """Return the names in lists, None if there is a list that is no file."""
    if not all(scheme_of(name) or os.path.isfile(name) for name in values.lists):
        return None
    return expand_lists(values.lists, values.nul, (lambda word: [word]) if values.nul else _names)


_REPAIR = "name them in a file: --null --files-from FILE"


def _names(word: str) -> list[str]:
    """Return what a word names without a look at what is there."""
    return [word] if os.path.lexists(word) else expand_braces(word)


def emit(
    ctx: click.Context, options: JobOptions, values: ValueWords, common: Sequence[str], jobs: Iterable[ValueJob]
) -> None:
    """Print a script that does what this command line does; `common` has its options that all runs of jobs have."""
    assert options.emit is not None
    engine, elements = parse_engine(options.emit)
    if "tarkit.report" in ctx.meta:
        raise Usage(f"{spell('emit', options.emit)} does not go with --report", "a journal has what each job did")
    name = ctx.info_name or ""
    if engine == "make":
        click.echo(os.fsencode(makefile(name, jobs, options.retries, options.timeout)), nl=False)
        return
    journal = None if options.journal is None else os.fspath(options.journal)
    refuse_url(journal, "journal")
    many = "tarkit.jobs" in ctx.meta
    array = JobArray(
        command=name,
        words=(*common, *([] if many else ["--jobs", "1"]), *values.before, *_fixed(values), *values.after),
        total=len(values.texts),
        elements=elements,
        slots=options.jobs if many else 1,
        journal=journal,
        directory=os.getcwd(),
    )
    text = slurm_script(array) if engine == "slurm" else k8s_job(array)
    click.echo(os.fsencode(text), nl=False)
