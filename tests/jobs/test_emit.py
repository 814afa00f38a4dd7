"""--emit: what is printed for Slurm, Kubernetes and make does the same as the command line; make runs it, bash and we.

An element of an array is a process with its number in the environment. GNU make is the real one, and the schemas of
Kubernetes are those of its releases.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tarkit.jobs.job import shell_word
from tests._served import served
from tests._tools import TARKIT, each_row, happens, program
from tests.conftest import tar, tarkit

pytestmark = pytest.mark.forks
ROOT = Path(__file__).resolve().parent.parent.parent
ODD = ["a b", "$HOME", "$(x)", "100%", "é's", '"q"#e', "c=d:e", "*", "?[h]", "a|b"]


def make_shards(names: Sequence[str], samples: int = 3) -> None:
    """Make shards in in/ whose samples are not in order, and directories for outputs."""
    for name in ("in", "out", "whole"):
        os.mkdir(name)
    for number, name in enumerate(names):
        fields = {f"{number}/{at}.txt": b"%d" % at for at in (2, 0, 1)[:samples]}
        Path(f"in/{name}.tar").write_bytes(tar(fields))


def written(directory: str = "out") -> dict[str, bytes]:
    paths = (path for path in Path(directory).rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def records() -> list[str]:
    """Return the values in all journals, in order."""
    lines = (line for path in Path().glob("*.jsonl") for line in path.read_text().splitlines())
    return sorted(json.loads(line)["value"] for line in lines)


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a `tarkit` that starts at once in PATH."""
    monkeypatch.setenv("PATH", f"{served(tmp_path_factory.getbasetemp())}:{os.environ['PATH']}")


@pytest.fixture
def path_of_processes(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a `tarkit` in PATH that is a process like any other."""
    bin = tmp_path_factory.mktemp("bin")
    (bin / "tarkit").write_text(f'#!/bin/sh\nexec {shlex.join([TARKIT[0], "-P", *TARKIT[1:]])} "$@"\n')
    (bin / "tarkit").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin}:{os.environ['PATH']}")


def emitted(engine: str, *words: str, **how: Any) -> str:
    """Return what a command line prints for an engine."""
    ran = tarkit(words[0], "--emit", engine, *words[1:], **how)
    assert ran.stderr == ""
    return ran.stdout.decode("utf-8", "surrogateescape")


def run_make(*words: str, exit: int = 0) -> str:
    ran = subprocess.run([program("make"), "-f", "Makefile", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == exit, ran.stderr
    return ran.stdout


def elements_of_slurm(script: str) -> list[list[str]]:
    """Return a command line for each element of an array script, after it is checked."""
    Path("job.sh").write_bytes(os.fsencode(script))
    subprocess.run(["bash", "-n", "job.sh"], check=True)
    [last] = re.findall(r"^#SBATCH --array=0-(\d+)$", script, re.M)
    return [["env", f"SLURM_ARRAY_TASK_ID={number}", "bash", "job.sh"] for number in range(int(last) + 1)]


def elements_of_k8s(text: str) -> list[list[str]]:
    """Return a command line for each element of a Job, after its schema is checked.

    Kubernetes replaces $(NAME) in the words of a command, and $$ by $ (the API reference, under `command`).
    """
    validate = pytest.importorskip("kubernetes_validate").validate
    job = pytest.importorskip("yaml").safe_load(text)
    validate(job, "1.33", strict=True)
    spec = job["spec"]
    [container] = spec["template"]["spec"]["containers"]
    assert (container["workingDir"], spec["completionMode"]) == (os.getcwd(), "Indexed")
    assert spec["template"]["spec"]["restartPolicy"] == "Never"

    def filled(word: str, number: int) -> str:
        known = {"JOB_COMPLETION_INDEX": str(number)}
        return re.sub(r"\$(?:\$|\((\w+)\))", lambda found: "$" if found[0] == "$$" else known[found[1]], word)

    return [[filled(word, number) for word in container["command"]] for number in range(spec["completions"])]


ARRAYS = {"slurm": elements_of_slurm, "k8s": elements_of_k8s}


@pytest.mark.slow
@each_row("engine", ARRAYS)
def test_arrays(here: Path, path: None, engine: str) -> None:
    """The elements of an array do each value once, and write what one run writes; again, they do what is left."""
    make_shards([*ODD, "-x", "last"], 1)
    Path("in/new\nline.tar").write_bytes(Path("in/last.tar").read_bytes())
    command = 'printf "%s" "$TARKIT_KEY$(date +%Y)\'é"\t>sample.is; ls *.txt | wc -l >> sample.is'
    line = ["proc", "-c", f"true\n{command}", "in/", "-j", "2"]
    tarkit(*line, "-o", "whole/{stem}.tar")
    text = emitted(f"{engine}:3", *line, "-o", "out/{stem}.tar", "--journal", "my night.jsonl")
    elements = ARRAYS[engine](text)
    Path("in/later.tar").write_bytes(b"not looked at")
    for words in elements[1:]:
        subprocess.run(words, check=True)
    [done, *_] = written()
    assert len(written()) < len(written("whole"))
    os.unlink(f"out/{done}")
    for words in elements:
        subprocess.run(words, check=True)
    assert written() == written("whole")
    assert len(records()) == len(set(records())) + 1 == len(ODD) + 4
    assert sorted(map(str, Path().glob("*.jsonl"))) == [f"my night-{number}.jsonl" for number in range(3)]


@pytest.mark.slow
@each_row("engine", ARRAYS)
def test_arrays_of_each(here: Path, path: None, engine: str) -> None:
    """Ranges stay, and so do lists in files; an element fails when one of its jobs does."""
    make_shards("abcd")
    Path("list").write_text("c\n\n{d,d/h}\n")
    line = ["each", "{a..b}", "-T", "list", "--halt", "never", "--", *["cat", "in/{}.tar", "+", "sort", "-o"]]
    text = emitted(f"{engine}:2", *line, "out/{index}")
    assert text.count("{a..b}") == text.count("list") == 1
    statuses = [subprocess.run(words, check=False, stderr=-3).returncode for words in ARRAYS[engine](text)]
    assert sorted(statuses) == [0, 1]
    tarkit(*line, "whole/{index}", exit=1)
    assert sorted(set(written())) == list("0123")
    assert {name: data for name, data in written("whole").items() if name != "4"} == written()


def test_scripts_of_slurm_are_clean(here: Path, path: None) -> None:
    """ShellCheck has nothing to warn of."""
    text = emitted("slurm", "each", "{0..9}", "a b", "--job-timeout", "9.5", "--", "bash", "-c", "echo '$1'", "-", "{}")
    checked = [program("shellcheck"), "--severity=warning", "-"]
    ran = subprocess.run(checked, input=text, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "")


@each_row(
    "words,elements",
    [
        (["slurm", "{1..8}"], 8),
        (["slurm", "{1..5000}"], 1000),
        (["slurm", "{1..100}", "-j", "8"], 13),
        (["slurm", "{1..100}", "-j", "0"], 100),
        (["k8s:7", "{1..100}"], 7),
        (["slurm:2000", "{1..1999}"], 1999),
    ],
)
def test_number_of_elements(here: Path, words: list[str], elements: int) -> None:
    """There is an element for each value, or each -j values, and no more than asked for."""
    text = emitted(words[0], "each", *words[1:], "--", "true")
    assert (f"--array=0-{elements - 1}\n" if words[0] != "k8s:7" else f"completions: {elements}\n") in text
    assert f"/{elements}" in text


def test_lists_that_are_no_files(here: Path) -> None:
    """What stdin lists is in the script, and what globs in a list find."""
    make_shards("ab")
    said = emitted("slurm", "each", "-T", "-", "--", "cat", "{}", stdin=b"in/*.tar\nx y\n")
    assert said.endswith(" in/a.tar in/b.tar 'x y' -- cat '{}'\n")
    Path("list").write_text("in/*.tar\n")
    assert "in/a.tar in/b.tar" in emitted("k8s", "each", "-T", "list", "--", "cat", "{}").replace(
        '"\n            - "', " "
    )
    assert "--files-from" not in emitted("slurm", "cat", "-T", "list", "-o", "out/{stem}")
    Path("list").write_bytes(b"in/a.tar\0in/b.tar\0")
    assert " --files-from list --null\n" in emitted("slurm", "cat", "-o", "{stem}", "-0T", "list").replace(
        " --output", "\n"
    )


@each_row(
    "words,expected",
    [
        (["ssh"], "--emit 'ssh': expected slurm, k8s or make"),
        (["slurm:0"], "--emit 'slurm:0': expected slurm, k8s or make"),
        (["make:3"], "--emit 'make:3': expected slurm, k8s or make"),
        (["slurm", "--dry-run"], "--emit slurm does not go with --dry-run"),
        (["k8s", "--journal", "j", "--resume"], "--emit k8s does not go with --resume"),
        (["slurm:9", "--shard-index", "0/2"], "--emit 'slurm:9' does not go with --shard-index"),
        (["make", "-j", "2"], "--emit make does not go with --jobs"),
        (["make", "--journal", "j"], "--emit make does not go with --journal"),
        (["make", "--halt", "never"], "--emit make does not go with --halt"),
        (["slurm", "--report", "r"], "--emit slurm does not go with --report"),
        (["slurm", "--journal", "s3://a/b"], "s3://a/b: --journal is a local path"),
        (["slurm", "s3://me:hidden@a/b"], "s3://a/b: the script would hold the secrets of this URL"),
        (["make", "s3://me:hidden@a/b"], "s3://a/b: the script would hold the secrets of this URL"),
        (["make", "d;e"], "'d;e': make cannot have a file of this name"),
        (["make", "d\ne"], "'d\\x0ae': make cannot have a file of this name"),
        (["k8s", "\udcff"], "'\\xff': YAML cannot represent a name that is not UTF-8"),
        (["slurm", "-T", "list"], "'-x': a command line cannot have this value"),
    ],
)
def test_usage(here: Path, words: list[str], expected: str) -> None:
    """What an engine cannot do is said, and nothing is printed."""
    Path("list").write_text("a*\n-x\n")
    Path("aa").touch()
    ran = tarkit("each", "a", "--emit", *words, "--", "cat", "{}", "-o", "{}.tar", exit=2)
    assert (ran.stderr.startswith(f"tarkit: {expected}"), ran.stdout) == (True, b""), ran.stderr
    assert "hidden" not in ran.stderr
    assert sorted(os.listdir()) == ["aa", "list"]


def test_seeds(here: Path) -> None:
    """All elements have one seed, which is given."""
    make_shards("a")
    ran = tarkit("shuffle", "in/", "-o", "out/{stem}.tar", "--emit", "slurm", exit=2)
    assert ran.stderr.startswith("tarkit: --emit requires --seed S")


@pytest.mark.slow
def test_too_many_names(here: Path) -> None:
    """Names that no command line has room for are to be listed in a file."""
    Path("list").write_text("".join(f"{'x' * 200}-{number}\n" for number in range(6000)))
    ran = tarkit("each", "-T", "-", "--emit", "k8s", "--", "true", exit=2, stdin=Path("list").read_bytes())
    assert ran.stderr.startswith("tarkit: the names are too many for one command line")
    assert "completions: 1000\n" in emitted("k8s", "each", "-T", "list", "--", "true")


def test_words_for_a_shell() -> None:
    """Bash reads every word as it was."""
    words = [*ODD, "", "-n", "a\nb\t\x01\x7f\\", "\\x41'\n", "~", "!x", "a\udcffb\n", "`x`", "\r", "\x010", "$$x", "%s"]
    line = f"printf '%s\\0' {' '.join(map(shell_word, words))}"
    assert "\n" not in line
    ran = subprocess.run(["bash", "-c", os.fsencode(line)], capture_output=True, check=True)
    assert [os.fsdecode(word) for word in ran.stdout.split(b"\0")[:-1]] == words


def test_all_journals_are_one(here: Path, path: None) -> None:
    """What the elements have done is not done again by a run with their journals."""
    make_shards("abcd")
    line = ["sort", "in/", "-o", "out/{stem}.tar"]
    for words in elements_of_slurm(emitted("slurm:3", *line))[1:]:
        subprocess.run(words, check=True)
    Path("all").write_bytes(b"".join(each.read_bytes() for each in Path().glob("*.jsonl")))
    ran = tarkit(*line, "--journal", "all", "--resume", "-v")
    assert " 4 jobs: 2 done, 2 kept, " in ran.stderr


def test_documentation(here: Path) -> None:
    """The scripts in docs/recipes/jobs.md are what its command lines print."""
    text = (ROOT / "docs/recipes/jobs.md").read_text()
    os.mkdir("shards")
    os.mkdir("done")
    for number in range(4):
        Path(f"shards/train-00000{number}.tar").write_bytes(tar({}))
    lines = re.findall(r"^(tarkit .* --emit .*) > \S+$", text, re.M)
    assert len(lines) == 3
    for line in lines:
        printed = tarkit(*shlex.split(line)[1:]).stdout.decode().replace(os.getcwd(), "/data/pets")
        assert f"```text\n{printed}```\n" in text


# ---- make


@pytest.mark.slow
def test_make(here: Path, path: None) -> None:
    """Two jobs at a time write what one run writes; then nothing is left to do, until a file has changed."""
    make_shards("abcdef")
    line = ["sort", "in/", "-o"]
    tarkit(*line, "whole/{stem}.tar")
    Path("Makefile").write_text(emitted("make", *line, "out/{stem}.tar"))
    assert run_make("-n").count("tarkit sort") == 6
    assert written() == {}
    run_make("-j2")
    assert written() == written("whole")
    assert "Nothing to be done" in run_make()
    Path("out/b.tar").unlink()
    os.utime("in/d.tar", (4e9, 4e9))
    assert re.findall(r"in/(.)\.tar", run_make()) == ["b", "d"]
    os.utime("in/d.tar", (1, 1))
    assert "Nothing to be done" in run_make()
    assert written() == written("whole")


@pytest.mark.slow
def test_make_is_killed(here: Path, path_of_processes: None) -> None:
    """All is killed in the middle: the next run does the rest, and the bytes are the same."""
    make_shards("abcdef")
    line = ["proc", "-c", f"cd '{os.getcwd()}' && . ./s; cd - && cp sample.txt sample.b", "in/", "-o"]
    Path("s").write_text(
        "[ $(ls out | wc -l) -lt 3 ] || [ -e go ] || { :>ready; until [ -e go ]; do sleep 0.1; done; exit; }"
    )
    Path("Makefile").write_text(emitted("make", *line, "out/{stem}.tar"))
    started = subprocess.Popen([program("make"), "-j2", "-f", "Makefile"], start_new_session=True, stdout=-3, stderr=-3)
    with started:
        assert happens(lambda: os.path.exists("ready"))
        os.killpg(started.pid, signal.SIGKILL)
    assert 3 <= len([name for name in written() if not name.startswith(".")]) < 6
    Path("go").touch()
    run_make("-j2")
    tarkit(*line, "whole/{stem}.tar")
    found = {name: data for name, data in written().items() if not name.startswith(".")}
    assert found == written("whole")


@pytest.mark.slow
def test_names_for_make(here: Path, path: None) -> None:
    """Names and commands with signs of make and of shells are what they were."""
    make_shards([*ODD, "-x", "year=1 $@%*", "(a).b"], 1)
    Path("in/aXb.tar").write_bytes(tar({"0/0.txt": b"0"}))  # which a|b and * must not be taken for
    command = "printf '%s' \"$$ $(echo x) %\" \\\n | tr -d 0-9 >sample.is # é"
    line = ["proc", "-c", command, "in/", "-o"]
    tarkit(*line, "whole/{stem}.tar")
    Path("Makefile").write_text(emitted("make", *line, "out/{stem}.tar"))
    run_make("-j2")
    assert written() == written("whole")
    assert "Nothing to be done" in run_make()
    for name in sorted(os.listdir("in")):
        os.utime(f"in/{name}", (4e9, 4e9))
        assert run_make("-n").count("tarkit proc") == 1, name
        os.utime(f"in/{name}", (1, 1))


@pytest.mark.slow
@each_row(
    "words,done",
    [
        (["cat", "in/{}.tar", "+", "sort", "-o", "out/{}.tar"], 2),
        (["extract", "in/{}.tar", "-C", "out/{}"], 2),
        (["bash", "-c", 'yes "$1" | cat | head -n 1 > "$2"', "-", "{{$}}", "out/{}"], 2),
        (["cat", "in/{}.tar", "-o", "/dev/null"], 2),
        (["bash", "-c", "[ {} != b ]", "+", "cat", "in/{}.tar", "-o", "out/{}.tar"], 1),
        (["yes", "+", "head", "-n", "1"], 2),
    ],
)
def test_stamps(here: Path, path: None, words: list[str], done: int) -> None:
    """What does not write one file whole is done when it has succeeded."""
    make_shards("ab")
    Path("Makefile").write_text(emitted("make", "each", "{a,b}", "--", *words))
    run_make("-k", exit=0 if done == 2 else 2)
    assert len(os.listdir("tarkit-each.done")) == done
    assert run_make("-n", "-k").count("tarkit each") == 2 - done
    line = [word.replace("out/", "whole/") for word in words]
    tarkit("each", "{a,b}", "--halt", "never", "--", *line, exit=done < 2)
    assert written() == written("whole")


def test_values_that_are_there_twice(here: Path, path: None) -> None:
    """A value that is there twice has one rule."""
    make_shards("ab")
    Path("Makefile").write_text(emitted("make", "each", "a", "b", "a", "--", "bash", "-c", "echo $1 >> n", "-", "{}"))
    assert run_make().count("tarkit each") == 2
    assert sorted(Path("n").read_text().split()) == ["a", "b"]


def test_retries_for_make(here: Path, path_of_processes: None) -> None:
    """A job that is tried again, or ended after a time, is run by `each`."""
    make_shards("ab")
    line = ["each", "{a,b}", "--job-retries", "2", "--job-timeout", "20", "--", "sort", "in/{}.tar", "-o", "out/{}.tar"]
    text = emitted("make", *line)
    assert "\ttarkit each a --job-retries 2 --job-timeout 20 -- tarkit sort in/a.tar -o out/a.tar\n" in text
    Path("Makefile").write_text(text)
    run_make()
    assert sorted(written()) == ["a.tar", "b.tar"]
