"""An extension of griffe, for the API reference: doctests at the end of a docstring are a section `Examples`."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Give doctests the heading that the Google style has for them, and grouped parameters a row each."""

    def on_object(self, *, obj: griffe.Object, **rest: Any) -> None:
        """Change the docstring of an object, before it is parsed."""
        if obj.docstring is not None:
            text = re.sub(r"^( +)(\w+(?:, \w+)+): ", _each, obj.docstring.value, flags=re.MULTILINE)
            before, mark, after = text.partition("\n\n>>> ")
            if mark:
                text = f"{before}\n\nExamples:\n{textwrap.indent(f'>>> {after}', '    ')}"
            obj.docstring.value = text


def _each(found: re.Match[str]) -> str:
    """Return a row for each of several parameters that are described together."""
    *others, last = found[2].split(", ")
    return "".join(f"{found[1]}{name}: see {last}.\n" for name in others) + f"{found[1]}{last}: "
