"""`--emit`: a command line that runs jobs becomes a script for another engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from tarkit.cli.command import WHOLE_RUN, common_options, given_words
from tarkit.cli.jobs import JobOptions, job_options
from tarkit.errors import Usage, show, spell
from tarkit.jobs.emit import JobArray, k8s_job, makefile, parse_engine, slurm_script
from tarkit.stores.schemes import refuse_url, scheme_of
from tarkit.streams.braces import expand_braces
from tarkit.streams.location import read_list

if TYPE_CHECKING:
    from tarkit.jobs.job import ValueJob


class ValueWords(NamedTuple):
    """The words that name the values of a run.

    Attributes:
        words: the arguments.
        lists: the lists of arguments, of `-T`.
        nul: whether the names in lists end with NUL.
        texts: the values.
        expand: returns the values of arguments and lists.
    """

    words: Sequence[str]
    lists: Sequence[str]
    nul: bool
    texts: list[str]
    expand: Callable[[Sequence[str], Sequence[str]], list[str]]

    def fixed(self) -> list[str]:
        """Return options and words that name these values, wherever and whenever they are read.

        What a glob or a directory finds is named, and what a list has that is no file, or that has globs itself.

        Raises:
            Usage: the values cannot be named so.
        """
        words, named = [], 0
        for word in self.words:
            found = self.expand([word], [])
            named += len(found)
            words += [word] if found == _names(word) else found
        lists = self.lists if self._fixed_lists() == self.texts[named:] else ()
        if self.lists and not lists:
            words += self.texts[named:]
        for word in words:
            if word.startswith("-") or not word:
                raise Usage(f"{show(word)}: a command line cannot have this value", _REPAIR)
        if self.expand(words, lists) != self.texts:
            raise Usage("the values would be others where the script runs", _REPAIR)
        options = [word for name in lists for word in ("--files-from", name)]
        return [*options, *(["--null"] if lists and self.nul else []), *words]

    def _fixed_lists(self) -> list[str] | None:
        """Return the names in lists, None if there is a list that is no file."""
        if not all(scheme_of(name) or os.path.isfile(name) for name in self.lists):
            return None
        words = (word for name in self.lists for _, word in read_list(name, name, self.nul))
        return [name for word in words for name in ([word] if self.nul else _names(word))]


_REPAIR = f"name them in a file: {spell('null')} {spell('files_from')} FILE"


def _names(word: str) -> list[str]:
    """Return what a word names without a look at what is there."""
    return [word] if os.path.lexists(word) else expand_braces(word)


def emit(
    ctx: click.Context,
    given: JobOptions,
    before: Sequence[str],
    inputs: ValueWords,
    after: Sequence[str],
    jobs: Iterable[ValueJob],
) -> None:
    """Print a script that does what this command line does.

    Args:
        ctx: the context of the command.
        given: the options of the run.
        before, after: the words of the command line around those of the inputs; without the options that all commands
            and all runs of jobs have.
        inputs: what names the values.
        jobs: the jobs.
    """
    assert given.emit is not None
    engine, elements = parse_engine(given.emit)
    if "tarkit.report" in ctx.meta:
        raise Usage(f"{spell('emit', given.emit)} does not go with --report", "a journal has what each job did")
    name = ctx.info_name or ""
    if engine == "make":
        click.echo(os.fsencode(makefile(name, jobs, given.job_retries, given.job_timeout)), nl=False)
        return
    if given.journal is not None:
        refuse_url(given.journal, "journal")
    own = given_words(ctx, (*common_options(), *job_options()), (*WHOLE_RUN, "emit", "journal"))
    many = "tarkit.jobs" in ctx.meta
    array = JobArray(
        command=name,
        words=(*own, *([] if many else ["--jobs", "1"]), *before, *inputs.fixed(), *after),
        total=len(inputs.texts),
        elements=elements,
        slots=given.jobs if many else 1,
        journal=given.journal,
        directory=os.getcwd(),
    )
    text = slurm_script(array) if engine == "slurm" else k8s_job(array)
    click.echo(os.fsencode(text), nl=False)
