"""Scripts that have another engine do the work of a command: an array of Slurm, a Job of Kubernetes, a Makefile.

Slurm (sbatch) and Kubernetes (batch/v1 Job, completionMode Indexed) start a number of elements, and tell each its
number. Each runs the whole command line with `--shard-index` and a journal of its own, so that it does its part of the
values, and after a break the rest of it. A Makefile (GNU make) has a rule for each job.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from string import Template

from tarkit.errors import Usage, show, spell
from tarkit.jobs.job import ValueJob, shell_word
from tarkit.jobs.journal import identity
from tarkit.redaction import hide_secrets
from tarkit.sizes import plural
from tarkit.stores.schemes import scheme_of

ENGINES = ("slurm", "k8s", "make")
ELEMENTS = 1000  # MaxArraySize of Slurm is 1001 where it is not set: the highest number is 1000
WORDS = 1 << 20  # bytes of a command line; etcd keeps objects of up to 1.5 MiB, and Linux starts programs with 2 MiB
SERIES = ("extract", "split", "shard")  # commands that write more than one file

_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # which JSON has as they are
_NO_FILE = re.compile(r"[;\\\x00-\x1f\x7f]|^~|[ &]$|\(.*\)$")  # names that a makefile cannot have (GNU make 4.3)
_MANY = re.compile(r"[*?[]|::")
_PLAIN = re.compile(r"[\w.:/@%+=][\w.:/@%+=-]*")
_MAKE = str.maketrans({"$": "$$", "=": "$(EQUALS)", **{sign: f"\\{sign}" for sign in " #:*?["}})


@dataclass(frozen=True)
class JobArray:
    """The work of one command line, divided among the elements of an array.

    Attributes:
        command: the command of tarkit.
        words: its other arguments; values are the same wherever and whenever it runs.
        total: the number of values.
        elements: at most so many.
        slots: jobs at a time in an element; 0 for one per CPU.
        journal: the file that the journals of the elements are named after; None for the name of the work.
        directory: where the elements run.
    """

    command: str
    words: tuple[str, ...]
    total: int
    elements: int
    slots: int
    journal: str | None
    directory: str

    @property
    def parts(self) -> int:
        """The number of elements: each has as many values as it does at a time, or more."""
        return max(1, min(self.elements, -(-self.total // (self.slots or 1))))

    @property
    def name(self) -> str:
        """A name of the work, which another command line does not have."""
        told = json.dumps([self.command, self.words, self.parts]).encode()
        return f"tarkit-{self.command}-{blake2b(told, digest_size=4).hexdigest()}"

    def own_words(self, number: str, spelled: Callable[[str], str]) -> list[str]:
        """Return the words that an element has for itself: its part, its journal.

        Args:
            number: the text in place of its number.
            spelled: returns a piece of a word for the engine.
        """
        start, suffix = os.path.splitext(self.journal or f"{self.name}.jsonl")
        part, journal = f"{number}{spelled(f'/{self.parts}')}", f"{spelled(f'{start}-')}{number}{spelled(suffix)}"
        return ["--shard-index", part, "--journal", journal, "--resume"]

    def script(self, template: str, **others: object) -> str:
        """Return a template with the facts about the array, and others, filled in."""
        _check_words(self.words)
        least, most = self.total // self.parts, -(-self.total // self.parts)
        share = f"{most}" if least == most else f"{least} or {most}"
        about = f"{plural(self.parts, 'part')} of the work, each with {share} of {plural(self.total, 'value')}"
        return _template(template).substitute(
            about=about, command=self.command, parts=self.parts, last=self.parts - 1, **others
        )


def _template(name: str) -> Template:
    return Template((files("tarkit.jobs") / "templates" / name).read_text("utf-8"))


def parse_engine(word: str) -> tuple[str, int]:
    """Return the engine, and the number of elements at most, of `ENGINE` or `ENGINE:N`. Raises Usage for others."""
    engine, sign, number = word.partition(":")
    counted = re.fullmatch("[1-9][0-9]{0,5}", number) is not None and engine != "make"
    if engine not in ENGINES or (sign and not counted):
        raise Usage(f"{spell('emit')} {show(word)}: expected slurm, k8s or make", "slurm:50 has at most 50 elements")
    return engine, int(number) if sign else ELEMENTS


def _check_words(words: Sequence[str]) -> None:
    """Raise Usage for words that a script must not or cannot hold."""
    for word in words:
        if (shown := hide_secrets(word, whole=bool(scheme_of(word)))) != word:
            raise Usage(
                f"{show(shown)[1:-1]}: the script would hold the secrets of this {'URL' if '://' in word else 'word'}",
                "leave them to the environment, or name the URLs in a file, -T FILE",
            )
    if sum(len(os.fsencode(word)) + 1 for word in words) > WORDS:
        raise Usage(
            "the names are too many for one command line", "put them in a file that all elements see, with -T FILE"
        )


# ---- Slurm and Kubernetes


def slurm_script(array: JobArray) -> str:
    """Return a script for sbatch."""
    return array.script(
        "slurm.sh",
        cpus=f"#SBATCH --cpus-per-task={array.slots}\n" if array.slots else "",
        directory=shell_word(array.directory),
        own=" ".join(array.own_words('"$SLURM_ARRAY_TASK_ID"', lambda text: shell_word(text) if text else "")),
        words=" ".join(map(shell_word, array.words)),
    )


def k8s_job(array: JobArray) -> str:
    """Return an indexed Job, as YAML."""
    array_words = array.own_words("$(JOB_COMPLETION_INDEX)", _k8s_word)
    words = ["tarkit", array.command, *array_words, *map(_k8s_word, array.words)]
    return array.script(
        "k8s.yaml",
        name=_yaml(array.name),
        directory=_yaml(array.directory),
        words="".join(f"            - {_yaml(word)}\n" for word in words),
        cpus=array.slots or 1,
    )


def _k8s_word(word: str) -> str:
    """Return a word of a container's command; Kubernetes replaces $(NAME) in it, and $$ by $."""
    return word.replace("$", "$$")


def _yaml(word: str) -> str:
    """Return a word as a double-quoted string of YAML. Raises Usage if it is no text."""
    if re.search("[\ud800-\udfff]", word):
        raise Usage(f"{show(word)}: YAML cannot represent a name that is not UTF-8", "rename it, or use -T FILE")
    quoted = json.dumps(word, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


# ---- make


def makefile(command: str, jobs: Iterable[ValueJob], retries: int, timeout: float | None) -> str:
    """Return a Makefile.

    A job of one step of tarkit has its output as target, if it writes one file. Any other job has a file that is made
    when it has succeeded; its name tells the job from all others.

    Args:
        command: the command of tarkit.
        retries: how often a job that failed is tried again.
        timeout: seconds after which a job is ended.

    Raises:
        Usage: a makefile cannot have the name of a file.
    """
    options = ["--job-retries", str(retries)] if retries else []
    options += ["--job-timeout", f"{timeout:g}"] if timeout else []
    rules = dict.fromkeys(_rule(command, job, options) for job in jobs)
    return _template("make.mk").substitute(command=command) + "".join(rules)


def _rule(command: str, job: ValueJob, options: Sequence[str]) -> str:
    target = _target(job)
    made = target or f"tarkit-{command}.done/{identity(job).hex()}"
    _check_words([job.value.text, *job.common, *job.outputs, *(word for step in job.steps for word in step)])
    directories = dict.fromkeys([*job.directories, *([] if target else [os.path.dirname(made)])])
    lines = [f"@mkdir -p -- {' '.join(map(shell_word, directories))}"] if directories else []
    lines += [_line(job, options)]
    lines += [] if target else ["@touch $@"]
    needed = "".join(f" {_make_name(name)}" for name in _prerequisites(job))
    rule = f"{_make_name(made, target=True)}:{needed}\n"
    return f"\ntarkit-jobs: {_make_name(made)}\n{rule}" + "".join(f"\t{line}\n" for line in lines)


def _is_plain(job: ValueJob) -> bool:
    return len(job.steps) == 1 and job.steps[0][0] == "tarkit"


def _target(job: ValueJob) -> str | None:
    """Return the file that a job writes, complete if it exists; None if a job writes no file, or several."""
    if not _is_plain(job) or job.steps[0][1] in SERIES or len(job.outputs) != 1:
        return None
    [name] = job.outputs
    usual = os.path.isfile(name) or not (os.path.lexists(name) or name.endswith("/"))
    return name if usual and not scheme_of(name) else None


def _prerequisites(job: ValueJob) -> Iterator[str]:
    for word in job.inputs:
        name = word.removeprefix("file:")
        if scheme_of(name) is None and (os.path.isfile(name) or not (os.path.exists(name) or _MANY.search(name))):
            yield name


def _line(job: ValueJob, options: Sequence[str]) -> str:
    steps = [[*step[:1], *job.common, *step[1:]] if step[0] == "tarkit" else step for step in job.steps]
    if _is_plain(job) and not options:
        return _recipe(steps[0]) + ("" if job.inputs else " </dev/null")
    text = job.value.text
    words = ["tarkit", "each", text if _PLAIN.fullmatch(text) else str(job.value.index), *options]
    for number, step in enumerate(steps):
        words += ["+" if number else "--", *(word.replace("{", "{{").replace("}", "}}") for word in step)]
    return _recipe(words)


def _recipe(words: Iterable[str]) -> str:
    return " ".join(map(shell_word, words)).replace("$", "$$")


def _make_name(name: str, target: bool = False) -> str:
    """Return the name of a file, as a target or a prerequisite. Raises Usage if there is no way to write it."""
    if _NO_FILE.search(name):
        raise Usage(f"{show(name)}: make cannot have a file of this name", f"rename it, or use {spell('emit')} slurm")
    return name.translate(_MAKE | {ord("%" if target else "|"): "\\%" if target else "\\|"})
