"""Each step says what loaders rely on, and the chains that are compared with a model have each step of a dataset."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import tarkit
from tarkit.pipeline.steps import Step
from tests._chains import Chain

PACKAGE = Path(tarkit.__file__).parent
BY_DEFAULT = {"CallFunction", "Gathering", "Position", "RunCommand", "RunProgram", "SampleWork"}
"""Steps that may leave samples out, as `Step` says for those that do not say otherwise; Gathering has no loader."""

NOT_DRAWN = {"exclude_keys"}
"""Steps of a dataset for which the model of `tests/_chains.py` has nothing."""


def steps(kind: type[Step]) -> list[type[Step]]:
    """Return all subclasses."""
    return [each for below in kind.__subclasses__() for each in (below, *steps(below))]


def test_each_step_says_whether_it_leaves_samples_out() -> None:
    """By `leaves_out` of the class or a base, or by `permutes`; others are listed in BY_DEFAULT."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if re.search(r"^class \w+\(.*(Step|ChooseAmongAll|SampleWork)\)", path.read_text(), re.MULTILINE):
            importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    public = [kind for kind in steps(Step) if kind.__module__.startswith("tarkit.") and kind.__name__[0] != "_"]
    silent = {kind.__name__ for kind in public if kind.leaves_out is Step.leaves_out and not kind.permutes}
    assert silent == BY_DEFAULT, "say with `leaves_out` whether samples may be left out"


def test_each_step_of_a_dataset_is_compared_with_a_model() -> None:
    """Else a method with a model is missing in `tests/_chains.py`, or is not among those that are drawn."""
    methods = {
        name
        for name, method in vars(tarkit.Dataset).items()
        if not name.startswith("_") and inspect.isfunction(method) and returns_dataset(method)
    }
    assert {"where", "map", "sort"} <= methods
    drawn = set(re.findall(r"\bdata\.(\w+)\(", "".join(map(inspect.getsource, drawn_methods()))))
    assert methods - drawn == NOT_DRAWN, "add a model of it to Chain"


def returns_dataset(method: Any) -> bool:
    """Return whether a method returns the dataset with a further step."""
    return inspect.signature(method).return_annotation == "Self"


def drawn_methods() -> list[Any]:
    """Return the methods of `Chain` that it draws, and those that they call."""
    found: dict[str, Any] = {}
    rest = ["_draw_steps"]
    while rest:
        name = rest.pop()
        if name not in found:
            found[name] = vars(Chain)[name]
            called = re.findall(r"\bself\.(\w+)", inspect.getsource(found[name]))
            rest += [other for other in called if inspect.isfunction(vars(Chain).get(other))]
    return list(found.values())
