"""Names of inputs as webdataset takes them: lists `a::b`, `${NAME}`, rules that replace names, and USE_AIS_FOR.

- `a.tar::b.tar` names two inputs. Inside a command only `::pipe:` separates, and in the brackets of `http://[::1]/`
  nothing does.
- `${NAME}` stands for the environment variable WDS_NAME, whose value may contain `${OTHER}`. In a command a name
  without such a variable is left to the shell.
- A rule `FROM=TO` replaces the regular expression FROM at the start of a name by TO, which may refer to groups: `\\1`.
  Rules come from GOPEN_REWRITE, then from WDS_REWRITE, where `;` separates them. FROM ends at the first `=`. The first
  rule that changes a name counts, and it is applied once.
- USE_AIS_FOR=gs:s3 names schemes whose objects are requested from the AIStore cluster at AIS_ENDPOINT, by the same
  names.

The rules are those of webdataset 1.0.2: `expand_urls` in shardlists.py, `rewrite_url` and `gopen_schemes` in gopen.py.
Its documentation names WDS_REWRITE and its code reads GOPEN_REWRITE, so both count here.
"""

from __future__ import annotations

import os
import re

from tarkit.errors import Usage, show

VARIABLES = ("GOPEN_REWRITE", "WDS_REWRITE")
"""Environment variables with rules, in the order in which they count."""

ROUNDS = 10
"""How often `${NAME}` is replaced in what it was replaced by."""

_SEPARATOR = r"::(?![^\[\]]*\])"
_NAME = r"\$\{(\w+)\}"

Rule = tuple[re.Pattern[str], str]


def split_list(word: str) -> list[str]:
    """Return the inputs that `word` names, one after the other; itself if it has no `::`."""
    if "::" not in word or word.startswith("file:"):
        return [word]
    items: list[str] = []
    for part in re.split(_SEPARATOR, word):
        if items and items[-1].startswith("pipe:") and not part.startswith("pipe:"):
            items[-1] += f"::{part}"
        else:
            items.append(part)
    return items


def substitute(word: str) -> str:
    """Return `word` with the values of variables in place of `${NAME}`.

    Raises Usage for a variable that is not set, or that contains itself.
    """
    command = word.startswith("pipe:")
    if "${" not in word or word.startswith("file:"):
        return word
    text = word
    for _ in range(ROUNDS):
        before, text = text, re.sub(_NAME, lambda match: _value(match, word, command), text)
        if text == before:
            return text
    if not re.search(_NAME, text):
        return text
    raise Usage(f"{show(word)}: ${{NAME}} is replaced more than {ROUNDS} times", "does a variable contain itself?")


def rewritten(names: list[str]) -> list[str]:
    """Return each name after the first rule that changes it. Raises Usage for an invalid rule."""
    texts = ((variable, rule) for variable in VARIABLES for rule in os.environ.get(variable, "").split(";"))
    rules = [_parse(rule, variable) for variable, rule in texts if rule]
    return [next((new for rule in rules if (new := rule[0].sub(rule[1], name)) != name), name) for name in names]


def _value(match: re.Match[str], word: str, command: bool) -> str:
    value = os.environ.get(f"WDS_{match[1]}")
    if value is None:
        if command:
            return match[0]
        raise Usage(f"{show(word)}: the environment variable WDS_{match[1]} is not set", "${NAME} stands for WDS_NAME")
    return value


def _parse(rule: str, origin: str) -> Rule:
    pattern, equals, replacement = rule.partition("=")
    try:
        if not equals:
            raise re.error("the rule has no =")
        compiled = re.compile(f"^{pattern}")
        compiled.sub(replacement, "")
        return compiled, replacement
    except (re.error, IndexError, RecursionError, OverflowError) as error:
        hint = "a rule is FROM=TO, and FROM a regular expression for the start of a name"
        raise Usage(f"{origin} {show(rule)}: {error}", hint) from None
