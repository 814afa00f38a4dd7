"""Commands that make one output for each input: where `-o` has a placeholder, each input is a job of its own.

The command line of a job is that of the whole run, with one input in place of all, and its output. It is rebuilt from
the words that click's parser finds for each option, before anything is converted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tarkit.cli.command import WHOLE_RUN, Command, Option, common_options, given_words, long_name
from tarkit.cli.jobs import JobOptions, job_options, run_all
from tarkit.cli.options import draw_seed, find_inputs
from tarkit.errors import Usage, show, spell
from tarkit.jobs import SIGNS
from tarkit.pipeline.template import epoch_names, parse_template, split_last, template_sign
from tarkit.stores import connect
from tarkit.stores.rewrite import rewritten
from tarkit.stores.schemes import public_name
from tarkit.streams.location import Location, parse_output

if TYPE_CHECKING:
    from tarkit.jobs.job import ValueJob
    from tarkit.jobs.journal import FileStates
    from tarkit.jobs.values import Value
    from tarkit.pipeline.template import ShardTemplate

INPUTS = ("words", "files_from", "null", "load")
CLUSTER_OPTIONS = ("dask", "dask_resources")  # that commands without a placeholder may have, too


class Written(NamedTuple):
    """An option as it stands on a command line: its parameter, and its word, None for a flag."""

    param: click.Parameter
    word: str | None
    flag: Any = None


def written_options(command: click.Command, ctx: click.Context, args: Sequence[str]) -> tuple[list[Written], list[str]]:
    """Return the options of a command line in their order, and its other words; nothing is converted.

    Raises:
        click.UsageError: an option does not exist, or lacks its value.
    """
    values, _, order = command.make_parser(ctx).parse_args(args=list(args))
    left = {name: list(value) if isinstance(value, (list, tuple)) else value for name, value in values.items()}
    found = []
    for param in order:
        if isinstance(param, click.Option):
            value = left[param.name or ""]
            if param.is_flag or param.count:
                found.append(Written(param, None, value))
            else:
                found.append(Written(param, value.pop(0)))
    given = [values.get(each.name) for each in command.params if isinstance(each, click.Argument)]
    lists = [[each] if isinstance(each, str) else each for each in given if isinstance(each, (str, tuple, list))]
    return found, [word for words in lists for word in words if isinstance(word, str)]


def spelled(option: Written) -> list[str]:
    """Return the words of an option."""
    param = option.param
    assert isinstance(param, click.Option)
    if option.word is None:
        return [param.secondary_opts[0] if option.flag is False and param.secondary_opts else long_name(param)]
    return [long_name(param), option.word]


class MappedCommand(Command):
    """A command of which each input can be a job.

    Args:
        maps: the parameter of the output.
        also: parameters of files that are written besides; they need placeholders too.
        passes: whether --dask is for all inputs together as well: for passes over them, or a task for each.
    """

    def __init__(
        self, *args: Any, maps: str = "output", also: Sequence[str] = (), passes: bool = False, **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self.passes = passes
        self.maps = maps
        self.also = tuple(also)
        self._job_options = job_options(detail=True)
        self.params += self._job_options

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; if the output has a placeholder, keep those of each option."""
        if any(sign in word for word in args for sign in SIGNS):
            try:
                written, _ = written_options(self, ctx, args)
            except click.UsageError:
                written = []  # it is raised again, with its context
            if any(each.param.name == self.maps and _maps(each.word or "") for each in written):
                ctx.meta["tarkit.written"] = written
        return super().parse_args(ctx, args)

    def run(self, ctx: click.Context) -> Any:
        """Run the command, or a job for each input."""
        written = ctx.meta.pop("tarkit.written", None)
        if written is not None:
            _Mapping(self, ctx, written).run(JobOptions.given(ctx))
            return None
        others = (each for each in self._job_options if not (self.passes and each.name in CLUSTER_OPTIONS))
        given = next((each for each in others if f"tarkit.{each.name}" in ctx.meta), None)
        if given is not None:
            option = next(each for each in self.params if each.name == self.maps)
            raise Usage(
                f"{long_name(given)} is for jobs, one for each input",
                f"name their outputs with a placeholder: {option.opts[0]} 'out/{{stem}}.tar'",
            )
        return super().run(ctx)


def _maps(word: str) -> bool:
    from tarkit.jobs.values import has_placeholder

    return not word.startswith(("file:", "pipe:")) and has_placeholder(word)


class _Mapping:
    """The jobs of a command line, one for each input."""

    def __init__(self, command: MappedCommand, ctx: click.Context, written: Sequence[Written]) -> None:
        from tarkit.cli.reads import READ

        self.command = command
        self.ctx = ctx
        self.name = ctx.info_name or ""
        common = {each.name for each in (*common_options(), *job_options())}
        self.written = [each for each in written if each.param.name not in {*INPUTS, *common, command.maps}]
        self.template = next(each.word or "" for each in written if each.param.name == command.maps)
        self.words = ["tarkit", self.name]
        self.common = tuple(given_words(ctx, common_options(), WHOLE_RUN))
        given = {each.param.name for each in written}
        self.read = files_read(each.word or "" for each in self.written if each.param.name in READ)
        self.series = "size_rule" in self._names() and bool(given & {"count", "size", "epochs"})

    def _names(self) -> set[str | None]:
        return {each.name for each in self.command.params}

    def run(self, options: JobOptions) -> None:
        """Run the jobs."""
        from tarkit.jobs.outputs import check_outputs
        from tarkit.jobs.values import make_values

        self._check_template()
        if any(each.param.name == "require_all" for each in self.written):
            what = f"{spell('require_all')} is for all inputs together, and here each has an output of its own"
            raise Usage(what, "tarkit cat INPUT... --keys-from FILE --require-all -o /dev/null checks them first")
        self._choose_seed(options)
        params = self.ctx.params
        words, lists = params.get("words") or (), params.get("files_from") or ()
        inputs = find_inputs(words, lists, bool(params.get("null")), None, bool(params.get("load")))
        _check_rewritten(inputs)
        texts = [each.text for each in inputs]
        jobs = list(zip(make_values(texts), inputs, strict=True))
        check_outputs(self.template, jobs)
        if options.emit is not None:
            self._emit(options, jobs)
            return
        some = jobs[options.part()]
        run_all((self._job(value, location) for value, location in some), len(some), options)

    def _emit(self, options: JobOptions, jobs: Sequence[tuple[Value, Location]]) -> None:
        from tarkit.cli.emit import ValueWords, emit
        from tarkit.streams.location import expand_inputs

        params = self.ctx.params
        words, lists = params.get("words") or (), params.get("files_from") or ()
        if params.get("load"):
            words, lists = (), (*words, *lists)
        nul = bool(params.get("null"))

        def expand(words: Sequence[str], lists: Sequence[str]) -> list[str]:
            return [_input_word(each) for each in expand_inputs(words, lists, nul)] if words or lists else []

        inputs = ValueWords(words, lists, nul, [_input_word(location) for _, location in jobs], expand)
        after = [*(word for each in self.written for word in spelled(each)), self._option(), self.template]
        emit(self.ctx, options, inputs, after, [], (self._job(*each) for each in jobs))

    def _option(self) -> str:
        """Return the name of the option that has the template."""
        option = next(each for each in self.command.params if each.name == self.command.maps)
        assert isinstance(option, Option)
        return long_name(option)

    def _check_template(self) -> None:
        from tarkit.jobs.values import without_placeholders

        option = next(each for each in self.command.params if each.name == self.command.maps).opts[0]
        sign = template_sign(without_placeholders(split_last(self.template)[1]))
        if sign is not None and not self.series:
            what = "unknown placeholder" if sign[0] in "{}" and ".." not in sign else "a job writes one file, not"
            hint = f"{option} may have {{stem}}, {{name}}, {{dir}} and {{index}}"
            raise Usage(f"{show(self.template)}: {what} {sign}", hint)
        for each in self.written:
            if each.param.name in self.command.also and not _maps(each.word or ""):
                raise Usage(
                    f"{' '.join(spelled(each))}: all jobs would write it",
                    f"give it a placeholder, such as {{stem}}, as {option} has one",
                )

    def _choose_seed(self, options: JobOptions) -> None:
        """Give all jobs one seed, where a command would draw one."""
        given = {each.param.name: each.word or "" for each in self.written}
        random = self.name == "shuffle" or not {"sample", "shuffle"}.isdisjoint(given)
        random = random or "__random__" in given.get("sort_field", "")
        if not random or "seed" not in self._names() or "seed" in given:
            return
        for name, value in (("emit", options.emit), ("journal", options.journal)):
            if value is not None:
                raise Usage(f"{spell(name)} requires --seed S", "a run that is resumed writes the same bytes")
        self.words += ["--seed", str(draw_seed(None))]

    def _output(self, value: Value) -> str:
        from tarkit.jobs.values import fill_name

        return fill_name(self.template, value)

    def _job(self, value: Value, location: Location) -> ValueJob:
        from tarkit.jobs.job import ValueJob
        from tarkit.jobs.outputs import parents_of
        from tarkit.jobs.values import fill_name

        output = self._output(value)
        words, outputs = [*self.words], [output]
        for each in self.written:
            if each.param.name in self.command.also and each.word is not None:
                filled = fill_name(each.word, value)
                outputs.append(filled)
                words += spelled(each._replace(word=filled))
            elif each.param.name == "rekey" and each.word is not None:  # the job knows one input alone
                below = "" if value.dir == "." else value.dir.replace("{", "{{").replace("}", "}}")
                word = each.word.replace("{dir}/", f"{below}/" if below else "").replace("{dir}", below)
                words += spelled(each._replace(word=word))
            else:
                words += spelled(each)
        words += [self._option(), output, _input_word(location)]
        files = (location.text,) if location.kind in ("path", "url") else ()
        return ValueJob(
            value,
            (tuple(words),),
            (*files, *self.read),
            () if self.series else known_outputs(outputs),
            partial(self._states, location),
            None,
            templates(output, self.ctx.params) if self.series else (),
            directories=parents_of(outputs),
            common=self.common,
        )

    def _states(self, location: Location) -> FileStates:
        """Return the states of what the job of an input reads."""
        from tarkit.cli.reads import step_reads
        from tarkit.jobs.journal import location_states

        reads = step_reads(self.command, self.written, ())._replace(storage=None)
        return {**location_states([location], None), **reads.option_states()}


def _check_rewritten(inputs: Sequence[Location]) -> None:
    """Raise Usage where the command line of a job would replace the start of a name again."""
    urls = [each.text for each in inputs if each.kind == "url"]
    for url, again in zip(urls, rewritten(urls, connect.options_of(None).rewrite), strict=True):
        if url != again:
            what = f"{public_name(url)}: --rewrite changes this name, which it has made, once more"
            raise Usage(what, "a rule whose FROM does not match what it makes, or the names themselves")


def _input_word(location: Location) -> str:
    if location.kind == "pipe":
        return f"pipe:{location.text}"
    return f"./{location.text}" if location.text.startswith("-") else location.text


def files_read(words: Iterable[str]) -> tuple[str, ...]:
    """Return the files of options in READ: FILE, FILE:COLUMN, FILE.py:FUNCTION or MODULE:FUNCTION."""
    parts = ((word, word.rpartition(":")[0]) for word in words)
    names = (name for word, file in parts for name in (word, file, file.replace(".", "/") + ".py"))
    return tuple(filter(os.path.isfile, names))


def templates(output: str, params: Mapping[str, Any]) -> tuple[ShardTemplate, ...]:
    """Return the templates of the shards that a command writes, by its parameters; none for an invalid name."""
    try:
        names = epoch_names(output, int(params["epochs"])) if params.get("epochs") else [output]
        return tuple(parse_template(name) for name in names)
    except (Usage, ValueError):
        return ()  # the job will fail, and say why


def known_outputs(words: Sequence[str]) -> tuple[str, ...]:
    """Return the files, directories and objects among the names of outputs; a series of shards is not known."""
    found = []
    for word in words:
        location = parse_output(word) if word else None
        if location is not None and location.kind in ("path", "url"):
            series = template_sign(location.text.rpartition("/")[2]) is not None and not word.startswith("file:")
            found += [] if series else [location.text]
    return tuple(found)
