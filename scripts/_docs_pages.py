"""Pages and tables in Markdown, for README.md and docs/: from the commands of click and the tables of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from _docs_man import ENVIRONMENT, NEEDED_FOR, SIGNALS, STATUS, loaded

from tarkit.cli.app import COMMANDS
from tarkit.cli.command import Option, sections
from tarkit.cli.command import description as describe
from tarkit.decoding.forms import FORMS
from tarkit.media.coding import KINDS, PICKLED_KINDS, ValueKind
from tarkit.media.coding_pictures import MODES
from tarkit.problems import PROBLEMS, ProblemKind
from tarkit.samples.properties import PROPERTIES

ROOT = Path(__file__).resolve().parent.parent


def command_table() -> str:
    """Return the table of commands for README.md."""
    rows = [f"| `tarkit {name}` | {line} |" for name, line in COMMANDS.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def coded(text: str) -> str:
    """Return text for Markdown, with options and commands marked as code."""
    option = rf"--?[a-z][a-z-]*(?: (?:'[^']*'|[A-Z]+(?::__\w+__)?|__\w+__[.\w]*\b|skip|key|{'|'.join(PROBLEMS)}))?"
    command = rf"tarkit (?:{'|'.join(COMMANDS)})\b|tar(?= --)"
    return re.sub(rf"(?<![`\w-])(?:(?:{command})(?: {option})*|(?=--){option})", r"`\g<0>`", text)


def problem_sections(problems: Mapping[str, ProblemKind]) -> str:
    """Return the sections of problems for docs/problems.md."""
    parts = []
    for name, kind in problems.items():
        lines = [
            f"## {name}\n",
            f"**{kind.default}**: {coded(kind.meaning)}.\n",
            *([f"- `--allow {name}` {coded(kind.allow)}."] if kind.allow else []),
            *([f"- `--skip {name}` {coded(kind.skip)}."] if kind.skip else []),
            *([f"- Repair: {coded(kind.repair)}."] if kind.repair else []),
        ]
        parts.append("\n".join(lines).rstrip("\n"))
    return "\n" + "\n\n".join(parts) + "\n"


def package_table() -> str:
    """Return the table of packages, and of the modules in none, for docs/architecture.md."""
    package = ROOT / "tarkit"
    above, inside = sorted(package.glob("[!_]*.py")), sorted(package.rglob("*/__init__.py"))
    rows = []
    for path in (*inside, *above):
        shown = path.relative_to(package)
        name = f"{shown.parent}/" if path in inside else str(shown)
        line = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
        rows.append(f"| `{name}` | {coded(' '.join(line.split()))} |")
    return "\n".join(["| package or module | contents |", "|---|---|", *rows])


def field_table() -> str:
    """Return the table of the values of fields for docs/formats/fields.md."""
    rows: dict[str, list[ValueKind]] = {}
    for kind in (*KINDS, *PICKLED_KINDS):
        if kind.name not in rows or kind in KINDS:
            rows.setdefault(kind.name, []).append(kind)
    lines = ["| fields | decoded | encoded from | refused | extra |", "|---|---|---|---|---|"]
    for same, *others in rows.values():
        names = " ".join(each.fields for each in (same, *others)).split()
        extra = f"`{same.extra}`" if same.extra else ""
        fields = " ".join(f"`{name}`" for name in names)
        lines.append(f"| {fields} | {same.value} | {same.takes} | {same.refused} | {extra} |")
    return "\n".join(lines)


def property_table() -> str:
    """Return the table of the properties of fields for docs/formats/fields.md."""
    lines = ["| name | property | value | cost: reads | extra |", "|---|---|---|---|---|"]
    for word, (meaning, _, form, cost, extra, _) in PROPERTIES.items():
        lines.append(f"| `{word}.FIELD` | {meaning} | {form} | {cost} | {extra} |")
    return "\n".join(lines)


def form_table() -> str:
    """Return the table of the forms of pictures for docs/formats/fields.md."""
    lines = ["| name | library | colours | type | shape |", "|---|---|---|---|---|"]
    for name, (library, mode, floats) in FORMS.items():
        colours = {None: "as stored", "L": "grey", "RGB": "RGB", "RGBA": "RGBA"}[mode]
        size = "height x width"
        if library == "pil":
            kind, shape = "image", ""
        else:
            kind = "float32, 0 to 1" if floats else "uint8, 0 to 255"
            count = {"L": "", "RGB": "3", "RGBA": "4"}[str(mode)]
            shape = size if not count else f"{count} x {size}" if library == "torch" else f"{size} x {count}"
        lines.append(f"| `{name}` | {'Pillow' if library == 'pil' else library} | {colours} | {kind} | {shape} |")
    return "\n".join(lines)


def mode_table() -> str:
    """Return the table of the modes of pictures for docs/formats/fields.md."""
    lines = ["| fields | modes |", "|---|---|"]
    formats = {kind.encode.args[0]: kind.fields.split() for kind in KINDS if kind.name == "picture"}  # type: ignore[attr-defined]
    for name, modes in MODES.items():
        fields = " ".join(f"`{field}`" for field in formats.get(name, [name]) if field == name or field not in MODES)
        lines.append(f"| {fields} | {', '.join(modes)} |")
    return "\n".join(lines)


# ---- A page for each command


def command_page(ctx: click.Context) -> str:
    """Return the page of a command: what it does, examples, all options."""
    command = ctx.command
    summary, _, description = describe(command).replace("\f", "").partition("\n\n")
    usage = " ".join(command.collect_usage_pieces(ctx))
    out = [
        "<!-- Written by scripts/docs from the help of tarkit: change that. -->",
        f"# {ctx.command_path}",
        " ".join(summary.split()),
        f"```text\n{ctx.command_path} {usage}\n```",
        *prose(description),
    ]
    if examples := getattr(command, "examples", ()):
        out += ["## Examples", "```sh\n" + "\n".join(examples) + "\n```"]
    for name, members in sections(command, ctx).items():
        out.append(f"## {name}")
        out += [part for each in members for part in option_parts(ctx, each)]
    if cost := getattr(command, "cost", "").replace("\f", ""):
        out += ["## Cost", escaped(" ".join(cost.split()))]
    names = {each.name for each in command.params}
    variables = [
        f"[{_variables(each)}](../scripting.md#{each.lower().replace(', ', '-')})"
        for each in ENVIRONMENT
        if NEEDED_FOR.get(each, "verbose") in names
    ]
    out += [
        "## Variables and exit status",
        "[Described for all commands](../scripting.md)" + ": " * bool(variables) + ", ".join(variables) + ".",
    ]
    return "\n\n".join(out) + "\n"


def option_parts(ctx: click.Context, each: click.Option) -> Iterator[str]:
    """Return the heading of an option, by which search finds it, and its help."""
    if isinstance(each, Option):
        names, text = each.spellings(whole=True), each.text(whole=True)
    else:  # --help, which is an option of click
        names, text = each.opts, each.help or ""
    value = "" if each.is_flag or each.count else f" {each.make_metavar(ctx)}"
    yield f"### `{', '.join(names)}{value}`"
    yield escaped(text)


def prose(text: str) -> Iterator[str]:
    r"""Return paragraphs; after \b, as in click, lines are kept."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("\b"):
            yield "```text\n" + "\n".join(paragraph.splitlines()[1:]) + "\n```"
        elif paragraph:
            yield escaped(" ".join(paragraph.split()))


# what is code in the words of a help: what is quoted, a name between underscores, a URL, a name in braces
_CODE = re.compile(
    r"(?<![`\w])('[^']+'(?!\w)|(?:\w+\.)?__\w+__(?:\.\w+)?|[a-z0-9+]+://[^\s,;:)]*|(?:\w+:)?\$?\{[^} ]*\})(?!`)"
)


def escaped(text: str) -> str:
    """Return text with code marked, and characters of Markdown that are none escaped."""
    parts = coded(" ".join(text.split())).split("`")
    for number in range(0, len(parts), 2):
        plain = _CODE.split(parts[number])
        parts[number] = "".join(
            f"`{part}`" if at % 2 else re.sub(r"[*>|\\]", r"\\\g<0>", part).replace("<", "&lt;")
            for at, part in enumerate(plain)
        )
    return "`".join(parts)


def command_list() -> str:
    """Return the table of commands for docs/commands/index.md."""
    rows = [f"| [`tarkit {name}`](tarkit-{name}.md) | {line} |" for name, line in COMMANDS.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def status_table() -> str:
    """Return the table of exit statuses for docs/scripting.md."""
    return "\n".join(
        ["| status | meaning |", "|---|---|", *(f"| {status} | {escaped(words)} |" for status, words in STATUS.items())]
        + ["", escaped(SIGNALS)]
    )


def variable_sections() -> str:
    """Return the sections of variables for docs/scripting.md, whose headings search finds."""
    return (
        "\n" + "\n\n".join(f"### {_variables(names)}\n\n{escaped(text)}" for names, text in ENVIRONMENT.items()) + "\n"
    )


def _variables(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def command_pages(top: click.Context, directory: Path) -> dict[Path, str]:
    """Return the page of each command, by path."""
    return {directory / f"tarkit-{name}.md": command_page(loaded(top, name)) for name in COMMANDS}
