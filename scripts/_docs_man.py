"""The manual pages, in roff (groff_man(7)): made from the commands of click."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

import click

from tarkit import __version__
from tarkit.cli.app import COMMANDS, group
from tarkit.cli.command import Option, sections
from tarkit.cli.command import description as describe
from tarkit.problems import PROBLEMS, ProblemKind

DATE = "2026-11-21"  # of the version
WIDTH = 73  # columns of an example in a man page on a terminal of 80 columns

STATUS = {
    "0": "Done, also if samples were left out on request.",
    "1": "Failed; stderr has a line with the reason, and perhaps a hint.",
    "2": "Usage error.",
}
SIGNALS = (
    "INT, TERM, HUP and PIPE: temporary files are removed, then tarkit ends by that signal; "
    "the status in a shell is 130, 143, 129 or 141."
)
ENVIRONMENT = {
    "TMPDIR": "Directory of temporary files, unless --tmpdir is given. Default: the directory of the output.",
    "SOURCE_DATE_EPOCH": "Time of new entries in seconds since 1970, unless --mtime is given.",
    "TARKIT_SHARD": "Set for the command of --post: the name of the shard.",
    "WDS_CACHE, WDS_CACHE_SIZE": "Directory of a cache of objects, and its maximum. --cache and --cache-size precede.",
    "TARKIT_NET_GAP": "Bytes between ranges of an object that are read to save a request. --net-gap precedes.",
    "GOPEN_REWRITE, WDS_REWRITE": "Rules FROM=TO;FROM=TO for the start of names of inputs.",
    "WDS_NAME": "Replaces ${NAME} in names of inputs.",
    "USE_AIS_FOR": "Schemes, such as gs:s3, whose objects are requested from the AIStore cluster at AIS_ENDPOINT.",
    "NO_COLOR": "If set, and not empty, there are no colours. It precedes the variables that ask for them.",
    "FORCE_COLOR, CLICOLOR_FORCE": "If one is set, and not to 0, text has colours in files and pipes too.",
    "TERM, CLICOLOR": "A terminal has colours, unless TERM is dumb or CLICOLOR is 0.",
}
NEEDED_FOR = {"SOURCE_DATE_EPOCH": "mtime", "TARKIT_SHARD": "post"}
PROBLEM_WORDS = (
    "Each fault of an archive has a name, which is in brackets at the end of the message. "
    "By default an error ends the run and a warning does not. --allow NAME continues and keeps what has the problem, "
    "--skip NAME continues without it; both can be given several times, and all stands for every name."
)


def literal(text: str) -> str:
    """Return text for roff, with all special characters escaped."""
    for char, name in (("\\", "\\e"), ("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga"), ("^", "\\(ha"), ("~", "\\(ti")):
        text = text.replace(char, name)
    return "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in text)


def bold(text: str) -> str:
    """Return text in bold."""
    return f"\\fB{literal(text)}\\fR"


def lines_of(text: str) -> list[str]:
    """Return lines of prose: a sentence begins a line, and none is long."""
    sentences = re.split(r"(?<=[.?!]) +(?=[A-Z-])", " ".join(text.split()))
    wrapped = [textwrap.wrap(literal(each), 79, break_long_words=False, break_on_hyphens=False) for each in sentences]
    return [f"\\&{line}" if line[0] == "." else line for lines in wrapped for line in lines]


def paragraphs(text: str) -> Iterator[str]:
    r"""Return prose of one or more paragraphs; after \b, as in click, lines are kept."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        if paragraph.startswith("\b"):
            yield from as_is(paragraph.splitlines()[1:])
        else:
            yield from lines_of(paragraph)


def as_is(lines: Iterable[str]) -> Iterator[str]:
    """Return lines that are not filled."""
    yield ".EX"
    for line in lines:
        if len(line) > WIDTH:
            raise SystemExit(f"scripts/docs: longer than {WIDTH} columns: {line}")
        yield ("\\&" if line[:1] == "." else "") + literal(line)
    yield ".EE"


def listed(term: str, text: str) -> list[str]:
    """Return an item of a list of terms."""
    return [".TP", term, *lines_of(text)]


def option(ctx: click.Context, each: click.Option) -> list[str]:
    """Return an option and its help."""
    if not isinstance(each, Option):  # --help, which is an option of click
        return listed(", ".join(map(bold, each.opts)), each.help or "")
    term = ", ".join(map(bold, each.spellings(whole=True)))
    value = "" if each.is_flag or each.count else f" \\fI{literal(each.make_metavar(ctx))}\\fR"
    return listed(term + value, each.text(whole=True))


def options(ctx: click.Context) -> Iterator[str]:
    """Return the options of a command in the sections of its help."""
    yield ".SH OPTIONS"
    for name, members in sections(ctx.command, ctx).items():
        yield f'.SS "{literal(name)}"'
        for each in members:
            yield from option(ctx, each)


def problem(name: str, kind: ProblemKind) -> Iterator[str]:
    """Return a problem, and its options and repair."""
    meaning = kind.meaning[0].upper() + kind.meaning[1:]
    yield from listed(f"{bold(name)} ({kind.default})", f"{meaning}.")
    for words in (f"--allow {kind.allow}.", f"--skip {kind.skip}.", f"Repair: {kind.repair}." if kind.repair else ""):
        yield from [".br", *lines_of(words)] if words else []


def page(ctx: click.Context) -> str:
    """Return the man page of a command, or of tarkit itself."""
    command, top = ctx.command, ctx.parent is None
    title = ctx.command_path.replace(" ", "-")
    summary, _, description = describe(command).replace("\f", "").partition("\n\n")
    summary = " ".join(summary.split())
    usage = re.sub(r"[A-Z]{2,}", r"\\fI\g<0>\\fR", literal(" ".join(command.collect_usage_pieces(ctx))))
    out = [
        '.\\" Written by scripts/docs from the help of tarkit: change that.',
        f'.TH {literal(title).upper()} 1 {DATE} "tarkit {__version__}" "tarkit manual"',
        ".nh",
        ".ad l",
        ".SH NAME",
        f"{literal(title)} \\- {literal(summary[0].lower() + summary[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        f"{bold(ctx.command_path)} {usage}",
        ".SH DESCRIPTION",
        *paragraphs(description or summary),
    ]
    if top:
        out.append(".SH COMMANDS")
        for name, line in COMMANDS.items():
            out += listed(f"\\fBtarkit\\-{literal(name)}\\fR(1)", line)
    out += options(ctx)
    if top:
        out += [".SH PROBLEMS", *lines_of(PROBLEM_WORDS)]
        for name, kind in PROBLEMS.items():
            out += problem(name, kind)
    if cost := getattr(command, "cost", "").replace("\f", ""):
        out += [".SH COST", *lines_of(cost)]
    out += [".SH EXIT STATUS"]
    for status, words in STATUS.items():
        out += listed(bold(status), words)
    out += [".PP", *lines_of(SIGNALS), ".SH ENVIRONMENT"]
    names = {each.name for each in command.params}
    for variable, words in ENVIRONMENT.items():
        if top or NEEDED_FOR.get(variable, "verbose") in names:
            out += listed(bold(variable), words)
    examples = getattr(command, "examples", ())
    if top:
        examples = [loaded(ctx, name).command.examples[0] for name in COMMANDS]  # type: ignore[attr-defined]
    out += [".SH EXAMPLES", *as_is(examples), ".SH SEE ALSO"]
    others = ["tarkit", *(f"tarkit-{name}" for name in COMMANDS)]
    out.append(",\n".join(f"\\fB{literal(each)}\\fR(1)" for each in [*others, "tar"] if each != title))
    return "\n".join(out) + "\n"


def loaded(ctx: click.Context, name: str) -> click.Context:
    """Return a command, in the context of tarkit."""
    command = group.get_command(ctx, name)
    assert command is not None
    return context(command, name, ctx)


def context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    """Return a context with the name of a command."""
    return click.Context(command, info_name=name, parent=parent, **command.context_settings)
