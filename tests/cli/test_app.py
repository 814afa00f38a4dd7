"""The command line as a whole: every command of the table, every error, completion in every shell."""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from tarkit import __version__, errors
from tarkit.cli import app, complete
from tarkit.cli.app import COMMANDS, group
from tarkit.cli.command import FIRST, LAST, Command, Option, sections
from tarkit.errors import (
    CommandFailed,
    Interrupted,
    MissingFile,
    MissingKey,
    MissingLibrary,
    Problem,
    TarkitError,
    Unsupported,
    Usage,
)
from tarkit.problems import PROBLEMS
from tarkit.stores.schemes import SCHEMES
from tarkit.streams.codecs.registry import CODECS
from tests._served import served
from tests._tools import PATIENT, TARKIT, archive, at_terminal, each_row, program, tarkit


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a directory for the test with an archive in it, and change to it."""
    monkeypatch.chdir(tmp_path)
    Path("a.tar").write_bytes(archive({"a.txt": b"1", "b.txt": b"2"}))
    return tmp_path


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run `tarkit WORDS` in this process; return status, stdout and stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            group.main(list(words), prog_name="tarkit")
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capfd.readouterr()

    return call


Call = Callable[..., tuple[int, str, str]]


def command(name: str) -> Command:
    """Return a command of the table."""
    found = group.get_command(click.Context(group), name)
    assert isinstance(found, Command)
    return found


# ---- every command

LONG = ("cat", "proc", "shard", "split", "tsv")  # commands whose --help takes two screens of 50 lines


@each_row(
    ("module", "words", "needs", "extra"),
    [
        ("PIL", ["show", "a.tar", "--images"], "drawing pictures needs Pillow", "images"),
        ("yaml", ["tsv", "a.tar", "--format", "yaml"], "--format yaml needs PyYAML", "yaml"),
        ("yaml", ["mix", "mix.yaml"], "mix.yaml: reading YAML needs PyYAML", "yaml"),
        ("pyarrow", ["tsv", "a.tar", "--format", "parquet"], "--format parquet needs pyarrow", "parquet"),
        ("pyarrow", ["index", "a.tar", "--format", "parquet"], "Parquet needs pyarrow", "parquet"),
        (
            "pyarrow",
            ["shard", "tree", "--join", "t.parquet:k", "-o", "s-%d.tar"],
            "t.parquet: Parquet needs pyarrow",
            "parquet",
        ),
    ],
)
def test_libraries_that_are_missing(
    module: str, words: list[str], needs: str, extra: str, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    """The error names the missing library, the hint how to install it."""
    Path("mix.yaml").write_text("a: 1")
    Path("t.parquet").write_bytes(b"PAR1")
    Path("tree").mkdir(exist_ok=True)
    Path("tree/a.x").write_bytes(b"1")
    monkeypatch.setitem(sys.modules, module, None)
    status, out, said = call(*words)
    hint = f"hint: pip install 'tarkit[{extra}]'"
    assert (status, out) == (1, "")
    assert said.startswith(f"tarkit: {needs}, which is not installed\n{hint}")


@each_row("name", COMMANDS)
def test_the_table(name: str) -> None:
    """The line of a command is the first of its help, a sentence that fits in the table."""
    found = command(name)
    assert found.name == name
    assert found.help
    assert inspect.cleandoc(found.help).splitlines()[0] == COMMANDS[name]
    assert found.callback
    assert found.callback.__module__ == f"tarkit.commands.{name}"
    assert re.fullmatch(r"[A-Z].{10,66}\.", COMMANDS[name])


@each_row("name", COMMANDS)
@each_row("word", ["-h", "--help"])
def test_help(name: str, word: str, call: Call) -> None:
    """The help shows the usage, examples to copy and the cost, in 80 columns."""
    status, out, err = call(name, word)
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: tarkit {name} ")
    assert max(map(len, out.splitlines())) <= 80
    found = command(name)
    assert len(found.examples) >= 3
    for example in found.examples:
        assert f"\n  {example}\n" in out
    cost = out.partition("\nCost:\n")[2]
    if name != "completion":
        assert re.search(r"\bmemory\b", cost, re.I)
        assert re.search(r"\bpass(es)?\b", cost, re.I)


@each_row("name", COMMANDS)
def test_examples(name: str) -> None:
    """The commands and options in examples exist and can be parsed."""
    found = 0
    for example in command(name).examples:
        for words in re.findall(r"\btarkit ([^|#)]*)", example):
            word, *rest = shlex.split(words)
            rest = rest[: rest.index(">")] if ">" in rest else rest
            parser = command(word).make_parser(click.Context(command(word), **command(word).context_settings))
            parser.parse_args(rest)
            found += 1
    assert found >= len(command(name).examples)


@each_row("name", COMMANDS)
def test_options(name: str) -> None:
    """Each option has a help that is a sentence, no name occurs twice, and the common options are present."""
    seen: list[str] = []
    for param in command(name).params:
        seen += [*param.opts, *param.secondary_opts]
        if isinstance(param, click.Option):
            assert param.help, param.opts
            assert re.search(r"[.\])]$", param.help), param.help
            assert param.help[0].isupper() or param.help.startswith("gz")
    assert len(seen) == len(set(seen))
    for word in ("-v", "-q", "--progress", "--no-progress", "--report", "--tmpdir"):
        assert (word in seen) is (name != "completion")  # completion has no run to report
    assert "--help-all" in seen


OWN = {
    "cat": ["Order", "Tables"],
    "check": ["Checks"],
    "create": ["Recipe"],
    "each": [],
    "get": ["Field"],
    "index": ["Index"],
    "mix": ["Mix"],
    "proc": ["Command", "With -c or -m", "With --map", "Failures", "Tables"],
    "shard": ["Shards", "Samples", "Tables", "Categories", "Plan"],
    "show": ["Show"],
    "shuffle": ["Order", "Shards"],
    "sort": ["Order", "Shards"],
    "split": ["Tables", "Shards", "Categories", "Parts"],
    "stats": ["Stats"],
    "tsv": ["Table", "Tables"],
}


@each_row("name", COMMANDS)
def test_sections(name: str, call: Call) -> None:
    """Every option belongs to a section, and --help lists sections in the order that all commands share."""
    found = command(name)
    context = click.Context(found, **found.context_settings)
    listed = sections(found, context)
    assert all(isinstance(param, Option) for param in found.params if isinstance(param, click.Option))
    assert sum(map(len, listed.values())) == sum(isinstance(each, click.Option) for each in found.get_params(context))
    assert [each for each in listed if each not in FIRST + LAST] == OWN.get(name, [])

    hidden = ("URLs",) if name == "each" else ("URLs", "Jobs")
    order = [each for each in (*FIRST, *OWN.get(name, []), *LAST) if each in listed]
    for word, shown in (("--help", [each for each in order if each not in hidden]), ("--help-all", order)):
        heads = [line[:-1] for line in call(name, word)[1].splitlines() if re.fullmatch(r"[A-Z].*:", line)]
        assert heads == [*shown, *(["Examples"] if found.examples else []), *(["Cost"] if found.cost else [])]
    assert list(listed) == order


@each_row("name", COMMANDS)
def test_help_is_short(name: str, call: Call) -> None:
    """The help fits on two screens, and each option takes one line."""
    lines = call(name, "--help")[1].splitlines()
    assert len(lines) <= (101 if name in LONG else 79)
    begin = next(number for number, line in enumerate(lines) if re.fullmatch("(Input|Output|Messages):", line))
    end = lines.index("Examples:")
    assert [line for line in lines[begin:end] if line and not re.match(r"\w.*:$|  -", line)] == []


@each_row("name", [name for name in COMMANDS if name != "completion"])
def test_help_names_urls_and_codecs(name: str, call: Call) -> None:
    """Each help says that inputs and outputs may be URLs; that of `tarkit` names all schemes and codecs."""
    words = " ".join(call(name, "--help")[1].split())
    if "[INPUT]..." in words:
        assert "URL (s3:// gs:// az:// https:// hf:// ais:// zpull://), -, pipe:COMMAND" in words
    for line in re.findall(r"--output (?:OUT|TEMPLATE) .*?\[default", words):
        assert "URL" in line
    whole = call("--help")[1]
    assert [scheme for scheme in SCHEMES if f"{scheme}://" not in whole] == []
    assert [codec for codec in CODECS if not re.search(rf"\b{codec}\b", whole)] == []


@each_row("name", COMMANDS)
def test_help_all(name: str, call: Call) -> None:
    """--help-all has what --help leaves out: other names of options, details, the rest of the description."""
    status, out, err = call(name, "--help-all")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    found = command(name)
    for paragraph in inspect.cleandoc(found.help or "").replace("\f", "").split("\n\n"):
        assert " ".join(paragraph.split()) in words
    for param in found.params:
        if isinstance(param, Option):
            assert ", ".join(param.spellings(whole=True)) in words
            assert " ".join(param.text(whole=True).split()) in words


@each_row("words", [(), ("-h",), ("--help",)])
def test_help_of_all(words: tuple[str, ...], call: Call) -> None:
    """--help lists every command with its line; without arguments the same text is a usage error."""
    status, out, err = call(*words)
    assert status == (0 if words else 2)
    shown = out if words else err
    for name, line in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(line.partition(' ')[0])}", shown, re.M)
    assert len(out) * len(err) == 0


def test_version(call: Call) -> None:
    """The version is one line."""
    assert call("--version") == (0, f"tarkit {__version__}\n", "")


COMPILED = find_spec("tarkit.tar._fast") is not None


@each_row(("pure", "says"), [("1", "turned off"), ("", "used" if COMPILED else "not compiled")])
def test_version_with_details(pure: str, says: str) -> None:
    """`--version -v` says whether the accelerator is used; `python -m tarkit` is the same program."""
    env = {**os.environ, "TARKIT_PURE": pure}
    done = subprocess.run([*TARKIT, "--version", "-v"], capture_output=True, check=True, text=True, env=env)
    first, python, accelerator = done.stdout.splitlines()
    assert first == f"tarkit {__version__}"
    assert python.startswith("Python 3.")
    assert accelerator.startswith(f"accelerator: {says}")


def test_version_that_cannot_be_printed() -> None:
    """A full disk and a closed stdout are errors."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*TARKIT, "--version"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"tarkit: No space left on device\n")
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *TARKIT, "--version"], capture_output=True, check=False)
    assert done.returncode == 1


# ---- usage errors


def test_an_option_with_a_newline(call: Call) -> None:
    """What was given is escaped; tests/commands/test_usage.py has the errors of command lines."""
    hint = "hint: see tarkit cat --help"
    assert call("cat", "--nothing\nat all") == (2, "", f"tarkit: cat: No such option '--nothing\\nat all'.\n{hint}\n")


@each_row("name", COMMANDS)
def test_unknown_option_of_each(name: str, call: Call) -> None:
    """An unknown option is a usage error of every command."""
    status, out, err = call(name, "--no-such-option")
    assert (status, out, err.count("\n")) == (2, "", 2)


# ---- errors


def raising(error: BaseException | type[BaseException]) -> click.Command:
    """Return a command that raises an error."""

    def fail() -> None:
        raise error

    return Command("boom", callback=fail)


@each_row(
    ("error", "status", "stderr"),
    [
        (TarkitError("what"), 1, "tarkit: what\n"),
        (TarkitError("what", "do this"), 1, "tarkit: what\nhint: do this\n"),
        (
            Problem("truncated", "a.tar", 512, "cut"),
            1,
            f"tarkit: a.tar: at 512: cut [truncated]\nhint: {PROBLEMS['truncated'].repair}\n",
        ),
        (
            MissingLibrary("this", "That", "those"),
            1,
            "tarkit: this needs That, which is not installed\nhint: pip install 'tarkit[those]'\n",
        ),
        (Unsupported("what"), 1, "tarkit: what\n"),
        (MissingFile("a: gone", filename="a"), 1, "tarkit: a: gone\n"),
        (MissingKey("no sample 'a'"), 1, "tarkit: no sample 'a'\n"),
        (CommandFailed("a\nb", 3, "why"), 1, "tarkit: command ended with status 3: a\\x0ab: why\n"),
        (Usage("what", "do this"), 2, "tarkit: what\nhint: do this\n"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "a b"),
            1,
            "tarkit: a b: No such file or directory\n",
        ),
        (OSError(errno.EIO, "Input/output error", b"caf\xe9\n"), 1, "tarkit: caf\\xe9\\x0a: Input/output error\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "tarkit: No space left on device\n"),
        (OSError("odd"), 1, "tarkit: odd\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe", "fifo"), 1, "tarkit: fifo: Broken pipe\n"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", 7), 1, "tarkit: Is a directory\n"),
    ],
)
def test_errors(error: Exception, status: int, stderr: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each error ends the run with one line and its status, for any characters in names."""
    monkeypatch.setattr(app.Commands, "get_command", lambda self, ctx, name: raising(error))
    assert call("boom") == (status, "", stderr)


def test_every_class_is_tested() -> None:
    """The test above has every public error class."""
    family = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, TarkitError)}
    leaves = {"Problem", "MissingFile", "MissingKey", "MissingLibrary", "Unsupported", "CommandFailed", "Usage"}
    assert family == leaves | {"TarkitError"}


@each_row("error", [KeyError("x"), AssertionError("x"), EOFError("x"), click.Abort()])
def test_a_bug_has_a_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other exceptions keep their traceback; click's Abort is not caught either."""
    monkeypatch.setattr(app.Commands, "get_command", lambda self, ctx, name: raising(error))
    with pytest.raises(type(error)):
        group.main(["boom"], prog_name="tarkit")


@each_row(
    ("error", "signum"),
    [
        (KeyboardInterrupt, signal.SIGINT),
        (BrokenPipeError(32, "x"), signal.SIGPIPE),
        (BrokenPipeError(32, "x", "stdout"), signal.SIGPIPE),
        (Interrupted(1), signal.SIGHUP),
        (Interrupted(15), signal.SIGTERM),
    ],
)
def test_ending_by_a_signal(
    error: BaseException | type[BaseException], signum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals and a closed stdout end the process silently by the signal."""
    monkeypatch.setattr(app.Commands, "get_command", lambda self, ctx, name: raising(error))
    done = tarkit("boom", exit=-signum)
    assert (done.stdout, done.stderr) == (b"", b"")


# ---- common options


@pytest.mark.parametrize("words", [["-v", "cat", "a.tar", "-o", "b.tar"], ["cat", "a.tar", "-v", "-o", "b.tar"]])
def test_verbose_before_and_after(words: list[str], call: Call) -> None:
    """-v prints the inputs as they are read, and a summary."""
    status, out, err = call(*words)
    assert (status, out) == (0, "")
    assert err.splitlines()[0] == "tarkit: reading a.tar"
    assert re.fullmatch(r"tarkit: cat: 2 samples, 3072 bytes, \d+\.\d\d s", err.splitlines()[-1])


@pytest.mark.parametrize("before", [True, False])
def test_report_before_and_after(before: bool, call: Call) -> None:
    """--report writes the summary as JSON."""
    option, words = ["--report", "report.json"], ["cat", "a.tar", "-o", "b.tar"]
    assert call(*(option + words if before else words + option)) == (0, "", "")
    report = json.loads(Path("report.json").read_text())
    assert (report["command"], report["samples"], report["bytes"], report["problems"]) == ("cat", 2, 3072, {})


@each_row(
    ("before", "after", "bar"),
    [
        ([], [], False),
        (["--progress"], [], True),
        ([], ["--progress"], True),
        (["--progress"], ["--no-progress"], False),
        (["--no-progress"], ["--progress"], True),
        (["--progress"], ["-q"], False),
        (["-q"], ["--progress"], False),
    ],
)
def test_progress(before: list[str], after: list[str], bar: bool, call: Call) -> None:
    """The last of --progress and --no-progress counts, -q takes precedence, and without a terminal there is no bar."""
    status, _, err = call(*before, "cat", "a.tar", "-o", "b.tar", *after)
    assert status == 0
    assert ("B/s" in err) == bar
    assert ("2 samples" in err) == bar


def test_quiet_before_and_after(call: Call) -> None:
    """-q suppresses warnings and notes, not errors."""
    Path("cut.tar").write_bytes(archive({"a.txt": b"1", "b.txt": b"2"})[:-1024])
    words = ["cat", "cut.tar", "-o", "b.tar", "--skip", "no-end-marker"]
    assert "warning: " in call(*words)[2]
    assert call("-q", *words) == (0, "", "")
    assert call(*words, "--quiet") == (0, "", "")
    assert call("-q", "cat", "cut.tar", "-o", "b.tar")[0] == 1
    assert "[no-end-marker]" in call("-q", "cat", "cut.tar", "-o", "b.tar")[2]


def test_tmpdir_before_and_after(call: Call) -> None:
    """A missing temporary directory is an error with its name."""
    words = ["create", "--on-missing", "error", "-", "-o", "b.tar"]
    big = "a.txt\tpipe:head -c 20000000 /dev/zero\n"
    for given in (["--tmpdir", "nowhere", *words], [*words, "--tmpdir", "nowhere"]):
        done = tarkit(*given, stdin=big.encode(), exit=1)
        assert b"nowhere" in done.stderr
    assert not os.path.exists("b.tar")
    assert call("--version")[0] == 0


# ---- completion


@pytest.fixture
def path(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return an environment with this `tarkit`, for shells without their own settings; it may take its time."""
    monkeypatch.setattr(complete, "LIMIT", PATIENT)
    (tmp_path / "archive-one.tar").touch()
    path = f"{served(tmp_path_factory.getbasetemp())}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "LC_ALL": "C"}


@each_row(
    ("shell", "mark"), [("bash", "complete -o nosort -F"), ("zsh", "#compdef tarkit"), ("fish", "complete --no-files")]
)
def test_scripts(shell: str, mark: str, call: Call) -> None:
    """There is a script for each shell, which the shell can parse."""
    status, out, err = call("completion", shell)
    assert (status, err) == (0, "")
    assert mark in out
    subprocess.run([program(shell), "-n"], input=out, text=True, check=True)


WORDS = [("tarkit sp", "split"), ("tarkit cat --shard-s", "--shard-slice"), ("tarkit split --size-rule c", "content")]
FILES = [("tarkit cat arch", "archive-one.tar"), ("tarkit cat -o arch", "archive-one.tar")]
DATA = [
    ("tarkit cat a.tar -f t", "txt"),
    ("tarkit sort a.tar -s t", "txt"),
    ('tarkit cat a.tar --where "has.t', "has.txt"),
    ("tarkit get a.", "a.txt"),
]


def test_fish(path: dict[str, str]) -> None:
    """fish offers the expected completions when queried."""
    lines = "; ".join(f"complete -C '{line}'; echo --" for line, _ in WORDS + FILES + DATA)
    done = subprocess.run(
        [program("fish"), "-c", f"tarkit completion fish | source; {lines}"],
        env=path,
        capture_output=True,
        text=True,
        check=True,
    )
    offers = [[line.split("\t")[0] for line in each.splitlines()] for each in done.stdout.split("--\n")]
    for (line, expected), offered in zip(WORDS + FILES + DATA, offers, strict=False):
        assert expected in offered, line


# compinit without the hundreds of completions of other programs, which it would search.
COMPINIT = (
    "all=($fpath); fpath=(${all:#*/Completion/*} ${(M)all:#*/(Base|Zsh)}); autoload -U compinit; compinit -u -D; "
    "fpath=($all); autoload -U _path_files"
)


class Terminal:
    """A shell at a terminal of its own."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.process, self.fd = at_terminal(words, env=environment)
        self.shown = ""

    def type(self, text: str, until: str) -> str:
        """Type, and wait until some text is shown; return all that was shown since."""
        os.write(self.fd, text.encode())
        self.shown, limit = "", time.monotonic() + PATIENT
        while until not in self.shown and time.monotonic() < limit:
            if select.select([self.fd], [], [], 0.1)[0]:
                self.shown += os.read(self.fd, 4096).decode(errors="replace")
        return self.shown

    def close(self) -> None:
        """End the shell and close the terminal."""
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


@pytest.mark.parametrize(
    ("shell", "start"),
    [
        (["bash", "--norc", "--noprofile", "-i"], "PS1='> '; bind 'set bell-style none'"),
        (["zsh", "-f", "-i"], "PS1='> '; " + COMPINIT),
    ],
    ids=["bash", "zsh"],
)
def test_shells(shell: list[str], start: str, path: dict[str, str]) -> None:
    """bash and zsh complete at a terminal when the tab key is pressed."""
    program(shell[0])
    terminal = Terminal(shell, path)
    try:
        terminal.type(f'{start}; eval "$(tarkit completion {shell[0]})"; echo rea""dy\n', "ready\r\n")
        for line, expected in WORDS + FILES + DATA:
            shown = terminal.type(f"{line}\t", expected)
            assert expected in shown, line
            terminal.type("\x15", "")
    finally:
        terminal.close()
