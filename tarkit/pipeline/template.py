"""Names of shards from a template, as in ishard (docs/formats).

A template numbers the last component of a path; the part before its last slash is plain text. Three notations:

- printf: `%06d` or `%d`, once; `%%` is a percent sign. Counts from 0 without end.
- bash: `{0000..4096..8}`, any number of them, the last counts fastest. Numbers are padded to the shorter of the two
  ends, as in ishard; bash and `braceexpand` pad to the longer.
- at: `@00001`, any number of them; counts from 0 to the number, padded to its width.

A name without a range gets `-%06d` before its suffix. A `pipe:` template is a command, with one printf number anywhere.

A part of a name that looks like a number of another notation, or like a placeholder, is an error (`template_sign`). The
name of a single file may have none of the three (`refuse_template`). `file:NAME` is not checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import Literal, NamedTuple

from tarkit.errors import TarkitError, Usage, show
from tarkit.sizes import and_more, plural
from tarkit.stores import connect
from tarkit.stores.schemes import is_listed, is_socket, public_name, scheme_of
from tarkit.stores.store import StoreOptions
from tarkit.streams.location import ARCHIVE_SUFFIXES

SPLIT_NAME = "split-%06d.tar"
AS_IT_IS = "file:NAME takes all but numbers literally"
FOR_EACH = "tarkit each INPUT... -- COMMAND {} -o TEMPLATE fills it in, and makes a series of each input"

Notation = Literal["printf", "bash", "at"]

_PATTERNS: dict[Notation, str] = {
    "bash": r"\{([0-9]{1,18})\.\.([0-9]{1,18})(?:\.\.([0-9]{1,18}))?\}",
    "printf": r"%%|%(?:0([0-9]{1,2}))?d|%",
    "at": r"@([0-9]*)",
}
_OF_EACH = r"\{(?:stem|name|dir|index)(?::[^{}]*)?\}"
_SIGNS: dict[Notation, str] = {"bash": r"\{[^{}]*\}|[{}]", "printf": r"%(?:0[0-9]*)?d", "at": r"@[0-9]+"}


class Span(NamedTuple):
    """The numbers of one range: `total` of them (None: unlimited), padded with zeros to `width`."""

    start: int
    step: int
    total: int | None
    width: int

    def text(self, position: int) -> str:
        """Return the number at `position`, counted from 0."""
        return f"{self.start + position * self.step:0{self.width}d}"

    def position(self, text: str) -> int | None:
        """Return the position of a number; None if this range does not have it in this form."""
        position, rest = divmod(int(text) - self.start, self.step)
        inside = not rest and position >= 0 and (self.total is None or position < self.total)
        return position if inside and self.text(position) == text else None

    @property
    def length(self) -> int | None:
        """The length of all numbers in characters; None if lengths differ."""
        if self.total is None:
            return None
        longest = len(self.text(self.total - 1))
        return longest if longest == len(self.text(0)) else None


class ShardTemplate:
    """A numbered series of distinct names. `count` is the number of names, None for an unlimited series."""

    def __init__(self, text: str, directory: str, literals: list[str], spans: list[Span], local: bool = True) -> None:
        """`literals` are the texts around and between the `spans`; `directory` is empty or ends with a slash."""
        self.text = text
        self.directory = directory
        self._literals = literals
        self._spans = spans
        self._local = local
        totals = [span.total for span in spans if span.total is not None]
        self.count = prod(totals) if len(totals) == len(spans) else None
        if self.count is not None and self.count >= 2**63:
            raise Usage(f"{_shown(text)}: too many names")
        numbers = [f"([0-9]{{{span.length}}})" if span.length else "([0-9]{1,99})" for span in spans]
        texts = [re.escape(literal) for literal in literals]
        self._pattern = re.compile("".join(a + b for a, b in zip(texts, numbers + [""], strict=True)))

    def name(self, index: int) -> str:
        """Return name `index`, counted from 0. Raises TarkitError when the template has fewer names."""
        if index < 0:
            raise ValueError(f"index {index}")
        if self.count is not None and index >= self.count:
            have = plural(self.count, "name")
            raise TarkitError(
                f"{_shown(self.text)}: too few names: the template has {have}, shard {index + 1} has none",
                "widen the range, or use %06d, which has no end",
            )
        parts = []
        for span, literal in zip(reversed(self._spans), reversed(self._literals), strict=False):
            index, position = (0, index) if span.total is None else divmod(index, span.total)
            parts += [literal, span.text(position)]
        return self.directory + self._literals[0] + "".join(reversed(parts))

    def matches(self, path: str) -> int | None:
        """Return the index of `path`; None if it is not a name of the series. Paths are compared literally."""
        if not path.startswith(self.directory):
            return None
        match = self._pattern.fullmatch(path, len(self.directory))
        index = 0
        for span, number in zip(self._spans, match.groups() if match else (), strict=False):
            position = span.position(number)
            if position is None:
                return None
            index = index * (span.total or 1) + position
        return index if match else None

    def existing(self, options: StoreOptions | None = None) -> list[tuple[int, str]]:
        """Return index and path of each file or object that has a name of this template, in order of index.

        The directory is listed once, with `options` if it is a URL. It is empty without a directory, for
        commands, and for stores without lists.
        """
        if is_listed(self.text):
            urls = _beginning(self.directory + self._literals[0], options)
            return sorted((index, url) for url in urls if (index := self.matches(url)) is not None)
        if not self._local:
            return []
        try:
            with os.scandir(self.directory or ".") as entries:
                return sorted(self._matching(entries))
        except FileNotFoundError:
            return []

    def neighbours(self, options: StoreOptions | None = None) -> list[str]:
        """Return the paths of all files in the directory of the shards, sorted; for objects, those that begin alike.

        A URL is listed with `options`.
        """
        if is_listed(self.text):
            return sorted(_beginning(self.directory + self._literals[0], options))
        if not self._local or not os.path.isdir(self.directory or "."):
            return []
        return [self.directory + base for base in sorted(os.listdir(self.directory or "."))]

    def _matching(self, entries: Iterator[os.DirEntry[str]]) -> Iterator[tuple[int, str]]:
        for entry in entries:
            path = self.directory + entry.name
            index = self.matches(path)
            if index is not None and not entry.is_dir(follow_symlinks=False):
                yield index, path


def _beginning(prefix: str, options: StoreOptions | None = None) -> list[str]:
    """Return the URLs of the objects whose URLs begin with `prefix`."""
    from tarkit.stores.listing import in_child

    return in_child(prefix, lambda: [info.url for info in connect.list_objects(prefix, options)])


def existing_among(names: Sequence[str], options: StoreOptions | None = None) -> list[str]:
    """Return those of these files and objects that exist; of a store, what begins like all in a directory is listed."""
    together: dict[str, list[str]] = {}
    for name in names:
        if is_listed(name):
            together.setdefault(name.rpartition("/")[0], []).append(name)
    there = {url for urls in together.values() for url in _beginning(os.path.commonprefix(urls), options)}  # noqa: RUF071
    return [name for name in names if name in there or (not scheme_of(name) and os.path.exists(name))]


def refuse_existing(paths: Sequence[str], hint: str, reason: str = "there are shards of this name") -> None:
    """Raise TarkitError when there are such files; `hint` names the options that keep or replace them."""
    if paths:
        raise TarkitError(f"{and_more(paths)}: {reason}", hint)


def parse_template(text: str, hint: str | None = AS_IT_IS) -> ShardTemplate:
    """Return the template of `text`, whose last component has numbers of one notation.

    A name without a range gets one, a directory also a name (`out/`: `out/split-%06d.tar`). In `file:PATH` all but
    numbers is literal. `hint` is for the error of a part that looks like a template.

    Raises `Usage`: empty, `*`, `-`, an invalid range, other parts that look like a template, names that would not be
    distinct.
    """
    if text.strip() in ("", "*"):
        raise Usage(f"invalid template {_shown(text)}", "for example 'out-%06d.tar'")
    if text == "-":
        raise Usage("shards cannot go to stdout", "name a template such as 'out-%06d.tar'")
    if is_socket(text):
        raise Usage(f"{_shown(text)}: shards are files or objects", "tarkit cat -o URL sends all samples")
    if text.startswith("pipe:"):
        literals, spans = _divided(text, "printf", text)
        if not spans:
            raise Usage(f"{_shown(text)}: a command for shards needs a number: %06d")
        return ShardTemplate(text, "", literals, spans, local=False)
    path = _file_path(text)
    head, slash, last = path.rpartition("/")
    if last in (".", ".."):
        head, slash, last = path, "/", ""
    last = last or SPLIT_NAME
    notation = _notation(last)
    literals, spans = _divided(last, notation, text)
    if not text.startswith("file:"):
        for literal in literals:
            # in printf a `%d` that is left was `%%d`
            sign = template_sign(literal, ignored="printf" if notation == "printf" else None)
            if sign is not None:
                raise _uncounted(sign, text, hint)
    if not spans:
        literals, spans = _completed(literals[0]), [Span(0, 1, None, 6)]
    _check_distinct(literals, spans, text)
    return ShardTemplate(text, head + slash, literals, spans, local=not scheme_of(path))


def template_sign(name: str, ignored: Notation | None = None) -> str | None:
    """Return a part of a name that looks like a template, in any notation but the one `ignored`; None without one."""
    matches = (re.search(sign, name) for notation, sign in _SIGNS.items() if notation != ignored)
    return next((match[0] for match in matches if match), None)


def refuse_template(word: str | None, series: str | None = None) -> None:
    """Raise Usage when the name of one file looks like a template. `file:NAME` and commands do not.

    Args:
        word: the name as the user wrote it, None for stdout.
        series: a hint that says which command or option makes a series.
    """
    if word is None or word.startswith(("file:", "pipe:")):
        return
    sign = template_sign(split_last(word)[1])
    if sign is None:
        return
    literal = None if scheme_of(word) else f"{show(f'file:{word}')} takes the name as it is"
    hint = "; ".join(filter(None, (series, literal))) or None
    if sign[0] in "{}" and not _looks_like_range(sign):
        raise _wrong_braces(sign, word, hint)
    raise Usage(f"{_shown(word)}: {sign} numbers a series of files, but only one is written", hint)


def refuse_braces(word: str, hint: str) -> None:
    """Raise Usage when the last component of a path has braces, which would be taken literally."""
    if braces := re.search(_SIGNS["bash"], split_last(word.rstrip("/"))[1]):
        raise _wrong_braces(braces[0], word, hint)


def split_last(words: str) -> tuple[str, str]:
    """Split a name before the last component of its path; `file:` and directories are the first part."""
    prefix = "file:" if words.startswith("file:") else ""
    head, slash, last = words.removeprefix(prefix).rpartition("/")
    return prefix + head + slash, last


def _shown(text: str) -> str:
    """Return a name for a message; of a URL without its secrets."""
    return show(public_name(text) if scheme_of(text) else text)


def _looks_like_range(name: str) -> bool:
    return any(".." in braces or "," in braces for braces in re.findall(_SIGNS["bash"], name))


def _notation(name: str) -> Notation:
    if _looks_like_range(name):
        return "bash"
    printf = re.search(_SIGNS["printf"], name.replace("%%", ""))
    return "at" if re.search(_SIGNS["at"], name) and not printf else "printf"


def _uncounted(sign: str, text: str, hint: str | None) -> Usage:
    """Return the error for a part of a template that looks like a number or a placeholder."""
    if _looks_like_range(sign):
        return Usage(f"{_shown(text)}: a range is {{FIRST..LAST}} or {{FIRST..LAST..STEP}}, of decimal numbers")
    if sign[0] in "{}":
        return _wrong_braces(sign, text, hint)
    return Usage(f"{_shown(text)}: {sign} is not a number here: a name has numbers of one notation", hint)


def _wrong_braces(sign: str, text: str, hint: str | None) -> Usage:
    if len(sign) == 1:
        return Usage(f"{_shown(text)}: unmatched or nested braces", hint)
    hint = f"{FOR_EACH}; {hint}" if hint == AS_IT_IS and re.fullmatch(_OF_EACH, sign) else hint
    return Usage(f"{_shown(text)}: unknown placeholder {sign}", hint)


def _file_path(text: str) -> str:
    path = text.removeprefix("file:")
    # the rest of file:PATH is a path, also if it looks like something else
    return f"./{path}" if path != text and (path.startswith(("file:", "pipe:")) or scheme_of(path)) else path


def _completed(name: str) -> list[str]:
    """Return the two sides of a number for a name without one: before a suffix of archives, or before `.tar`."""
    for suffix in ARCHIVE_SUFFIXES:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return [name[: -len(suffix)] + "-", name[-len(suffix) :]]
    return [name + "-", ".tar"]


def _divided(name: str, notation: Notation, text: str) -> tuple[list[str], list[Span]]:
    """Return the texts around and between the numbers of a name, and the numbers. Raises Usage for an invalid one."""
    literals, spans, position = [""], list[Span](), 0
    for match in re.finditer(_PATTERNS[notation], name):
        literals[-1] += name[position : match.start()]
        position = match.end()
        if match[0] == "%%":
            literals[-1] += "%"
            continue
        if match[0] == "%":
            raise Usage(f"{_shown(text)}: numbers are %d or %06d, a percent sign is %%")
        if notation == "printf" and spans:
            raise Usage(f"{_shown(text)}: more than one number")
        spans.append(_span(match, notation, text))
        literals.append("")
    literals[-1] += name[position:]
    return literals, spans


def _span(match: re.Match[str], notation: Notation, text: str) -> Span:
    if notation == "printf":
        return Span(0, 1, None, int(match[1] or 0))
    if notation == "at":
        if not 1 <= len(match[1]) <= 18:
            raise Usage(f"{_shown(text)}: @ is followed by the last number, of at most 18 digits")
        return Span(0, 1, int(match[1]) + 1, len(match[1]))
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if first > last or not step:
        raise Usage(f"{_shown(text)}: the range {match[0]} has no numbers")
    return Span(first, step, (last - first) // step + 1, min(len(match[1]), len(match[2])))


def _check_distinct(literals: list[str], spans: list[Span], text: str) -> None:
    """Refuse names such as those of `{1..11}{1..11}`, where 111 would come twice.

    Ranges with only digits between them must, but for one, have numbers of one length; then every name can be read
    in one way alone.
    """
    varying = 0
    for gap, span in zip(literals, spans, strict=False):
        if gap.strip("0123456789"):
            varying = 0
        varying += span.length is None
        if varying > 1:
            raise Usage(f"{_shown(text)}: two shards would have the same name", "put a dash between the ranges")


# ---- Names per epoch

_PLACE = r"\{epoch(?::0?([0-9]{1,2})d)?\}"
_NUMBERS = frozenset("0123456789%{}@")


def refuse_epoch(text: str | None) -> None:
    """Raise Usage when the name of the only output has a placeholder for an epoch."""
    if text is not None and re.search(_PLACE, text) and not text.startswith(("file:", "pipe:")):
        raise Usage(f"{show(text)}: {{epoch}} needs --epochs N")


def epoch_names(text: str, epochs: int) -> list[str]:
    """Return the name or the template for each epoch, counted from 0.

    `{epoch}` and `{epoch:03d}` are its number; without either, the last component of a path gets the prefix `epoch0-`.
    Raises Usage when another number is next to it, or when a command or stdout has no such placeholder.
    """
    places = list(re.finditer(_PLACE, text))
    if not places:
        if "{epoch" in text:
            raise Usage(f"{show(text)}: the placeholder of an epoch is {{epoch}} or {{epoch:03d}}")
        if text == "-" or text.startswith("pipe:"):
            raise Usage(f"{show(text)}: each epoch needs an output of its own", "name files, as in 'e{epoch}-%06d.tar'")
        directory, last = split_last(text)
        return [f"{directory}epoch{epoch}{last and '-'}{last}" for epoch in range(epochs)]
    for place in places:
        if {text[place.start() - 1 : place.start()], text[place.end() : place.end() + 1]} & _NUMBERS:
            raise Usage(f"{show(text)}: a number next to {place[0]}", "put a dash between them")
    return [_named(text, str(epoch)) for epoch in range(epochs)]


def _named(text: str, number: str) -> str:
    return re.sub(_PLACE, lambda place: number.zfill(int(place[1] or 0)), text)
