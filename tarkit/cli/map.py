"""Commands that make one output for each input: where `-o` has a placeholder, each input is a job of its own.

The command line of a job is that of the whole run, with one input in place of all, and its output. It is rebuilt from
the words that click's parser finds for each option, before anything is converted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tarkit.cli.command import WHOLE_RUN, Command, Option, common, common_options, given_words, long_name
from tarkit.cli.jobs import CLUSTER_OPTIONS, given_options, make_job, run_values
from tarkit.cli.options import draw_seed, find_inputs
from tarkit.errors import Usage, show, spell
from tarkit.jobs import SIGNS
from tarkit.jobs.options import JobOptions
from tarkit.pipeline.template import split_last, template_sign
from tarkit.stores.rewrite import rewritten
from tarkit.stores.schemes import public_name
from tarkit.streams.location import Location

if TYPE_CHECKING:
    from tarkit.cli.emit import ValueWords
    from tarkit.cli.lines import WrittenOption
    from tarkit.jobs.job import ValueJob
    from tarkit.jobs.values import Value

INPUTS = ("words", "files_from", "null", "load")
_FOR_ALL = {
    "require_all": "tarkit cat INPUT... --keys-from FILE --require-all -o /dev/null checks them first",
    "unique_by": "one command writes all of them: tarkit split INPUT... --unique-by FIELD -o 'out-%06d.tar'",
}


class MappedCommand(Command):
    """A command of which each input can be a job.

    Args:
        passes: whether --dask is for all inputs together as well: for passes over them, or a task for each.

    Attributes:
        output: the option of the output that may have a placeholder; all other outputs need one too.
    """

    def __init__(self, *args: Any, passes: bool = False, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.passes = passes
        self.output = next(param for param in self.params if isinstance(param, Option) and param.role == "output")
        self._job_options = common(JobOptions, detail=True)
        self.params += self._job_options

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; if the output has a placeholder, keep the options as they are written."""
        if any(sign in word for word in args for sign in SIGNS):
            from tarkit.cli.lines import parse_step

            try:
                options = parse_step(self, ctx, args).options
            except click.UsageError:
                options = []  # it is raised again, with its context
            if any(option.param is self.output and _maps(option.word) for option in options):
                ctx.meta["tarkit.written"] = options
        return super().parse_args(ctx, args)

    def run(self, ctx: click.Context) -> Any:
        options = ctx.meta.pop("tarkit.written", None)
        if options is not None:
            _Mapping(self, ctx, options).run(given_options(ctx))
            return None
        others = (each for each in self._job_options if not (self.passes and each.name in CLUSTER_OPTIONS))
        given = next((each for each in others if f"tarkit.{each.name}" in ctx.meta), None)
        if given is not None:
            raise Usage(
                f"{long_name(given)} is for jobs, one for each input",
                f"name their outputs with a placeholder: {self.output.spelled} 'out/{{stem}}.tar'",
            )
        return super().run(ctx)


def _maps(word: str) -> bool:
    from tarkit.jobs.values import has_placeholder

    return not word.startswith(("file:", "pipe:")) and has_placeholder(word)


class _Mapping:
    """The jobs of a command line, one for each input."""

    def __init__(self, command: MappedCommand, ctx: click.Context, written: Sequence[WrittenOption]) -> None:
        from tarkit.cli.lines import TarkitStep

        self.output = next(option for option in written if option.param is command.output)
        unlike = {*INPUTS, self.output.name, *(param.name for param in (*common_options(), *common(JobOptions)))}
        options = [option for option in written if option.name not in unlike]
        self.step = TarkitStep(command, [*options, self.output], [], alone=False)
        self.common = tuple(given_words(ctx, common_options(), WHOLE_RUN))
        self.seed: list[str] = []
        self.ctx = ctx
        self.inputs: list[Location] = []

    def run(self, options: JobOptions) -> None:
        from tarkit.jobs.outputs import check_outputs
        from tarkit.jobs.values import make_values

        self._check_template()
        for name, other in _FOR_ALL.items():
            if self.step.has(name):
                message = f"{spell(name)} is for all inputs together, and here each has an output of its own"
                raise Usage(message, other)
        self._choose_seed(options)
        words, lists, nul, load = (self.ctx.params.get(name) for name in INPUTS)
        self.inputs = find_inputs(words or (), lists or (), bool(nul), None, bool(load))
        _check_rewritten(self.inputs)
        texts = [location.text for location in self.inputs]
        check_outputs(self.output.word, list(zip(make_values(texts), self.inputs, strict=True)))
        run_values(self.ctx, options, texts, self._job, self._value_words)

    def _value_words(self) -> ValueWords:
        from tarkit.cli.emit import ValueWords
        from tarkit.streams.location import expand_inputs

        words, lists, nul, load = (self.ctx.params.get(name) for name in INPUTS)
        if load:
            words, lists = (), (*(words or ()), *(lists or ()))

        def expand(words: Sequence[str], lists: Sequence[str]) -> list[str]:
            return [_input_word(each) for each in expand_inputs(words, lists, bool(nul))] if words or lists else []

        before = [word for option in self.step.options for word in option.words()]
        return ValueWords(words or (), lists or (), bool(nul), list(map(_input_word, self.inputs)), expand, before)

    def _check_template(self) -> None:
        from tarkit.jobs.values import without_placeholders

        name = self.output.param.spelled
        sign = template_sign(without_placeholders(split_last(self.output.word)[1]))
        if sign is not None and not self.step.writes_shards:
            words = "unknown placeholder" if sign[0] in "{}" and ".." not in sign else "a job writes one file, not"
            hint = f"{name} may have {{stem}}, {{name}}, {{dir}} and {{index}}"
            raise Usage(f"{show(self.output.word)}: {words} {sign}", hint)
        for option in self.step.options:
            if option.param.role == "output" and not _maps(option.word):
                raise Usage(
                    f"{' '.join(option.words())}: all jobs would write it",
                    f"give it a placeholder, such as {{stem}}, as {name} has one",
                )

    def _choose_seed(self, options: JobOptions) -> None:
        """Give all jobs one seed, where a command would draw one."""
        step = self.step
        random = (
            step.name == "shuffle"
            or step.has("sample", "balance", "shuffle")
            or "__random__" in "".join(step.values("by"))
        )
        if not random or step.has("seed") or not step.takes("seed"):
            return
        for name, value in (("emit", options.emit), ("journal", options.journal)):
            if value is not None:
                raise Usage(f"{spell(name)} requires --seed S", "a run that is resumed writes the same bytes")
        self.seed = ["--seed", str(draw_seed(None))]

    def _job(self, value: Value) -> ValueJob:
        from tarkit.jobs.outputs import parents_of

        options = [_filled(option, value) for option in self.step.options]
        step = replace(self.step, options=options, words=[_input_word(self.inputs[value.index])])
        line = ["tarkit", step.name, *self.seed, *(word for option in options for word in option.words()), *step.words]
        return make_job(value, [line], [step], directories=parents_of(step.outputs()), common=self.common)


def _filled(option: WrittenOption, value: Value) -> WrittenOption:
    """Return an option of the job of a value."""
    from tarkit.jobs.values import fill_name

    word = option.word
    if option.param.role == "output":
        return option._replace(word=fill_name(word, value))
    if option.name == "rekey":  # the job knows one input alone
        below = "" if value.dir == "." else value.dir.replace("{", "{{").replace("}", "}}")
        return option._replace(word=word.replace("{dir}/", f"{below}/" if below else "").replace("{dir}", below))
    return option


def _check_rewritten(inputs: Sequence[Location]) -> None:
    """Raise Usage where the command line of a job would replace the start of a name again."""
    urls = [each.text for each in inputs if each.kind == "url"]
    for url, again in zip(urls, rewritten(urls), strict=True):
        if url != again:
            message = (
                f"{public_name(url)}: GOPEN_REWRITE or WDS_REWRITE changes this name, which it has made, once more"
            )
            raise Usage(message, "a rule whose FROM does not match what it makes, or the names themselves")


def _input_word(location: Location) -> str:
    if location.kind == "pipe":
        return f"pipe:{location.text}"
    return f"./{location.text}" if location.text.startswith("-") else location.text
