"""The position of a loader, as values of JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from random import Random
from struct import pack, unpack
from sys import maxsize
from typing import Any, NamedTuple, Self

from tarkit.errors import Usage
from tarkit.loading.division import WorkerPlace
from tarkit.loading.identity import parse_marks
from tarkit.loading.order import Unit, time_of
from tarkit.sizes import plural

VERSION = 6

_END = -1  # the form of a number from -1 on; that of one from 0 on is `int`
_UNIT, _PLACE = (int, int, _END), (int, int)
_PLANS = (None, [_UNIT], [(int, int, int, [_END], [[int]])])
_FORMS: dict[str, Sequence[Any]] = {
    **dict.fromkeys(("epoch", "following", "given", "opened", "skip", "passed", "block"), (int,)),
    "epochs": (None, int),
    "open": ([_UNIT],),
    "buffer": ([_PLACE],),
    "taken": ([_PLACE],),
    "drawn": ([int],),
    "passes": ([_END],),
    "plan": _PLANS,
    "later": ([(int, plan, [_PLACE], int) for plan in _PLANS],),
}
"""The forms of values: a number, None, a tuple of values, or any number of values of one of the forms in a list."""

_LISTS = ("open", "buffer", "taken", "drawn", "passes", "plan", "later")
_WORDS = "<625I"  # the state of the Mersenne Twister


Plan = tuple[Any, ...]


class Progress(NamedTuple):
    """The position in an epoch of one worker.

    Attributes:
        epoch: the number of the epoch.
        epochs: how many epochs the iteration has from this one on; None for no end.
        following: the number of the epoch that the next iteration begins with, the same for all workers, which may be
            in different epochs of this one. An iteration without end counts as one epoch.
        given: how many samples were given.
        taken: samples that were taken from the others but not given, since the batch or the decoding of one failed:
            shard and number. They come first.
        skip: how many values of the first of these were given before, where `transform` gives several of a sample.
        passed: where samples come several times in an epoch, how many gave all their values or none, before those.
        opened: how many units of the order of the epoch were opened: shards, or parts of views.
        open: the units that are open, in the order of their turns, from the next sample of each on.
        buffer: the samples in the shuffle buffer: shard and number.
        marks: what recognises the shards that were opened in this epoch, by `tarkit.loading.identity.marks_as_text`.
        random: the state of the random numbers of the buffer; None before the first sample.
        sources: of a mix, the position in the present pass over each source.
        drawn: how often each of these was drawn, since their number changed.
        passes: how often the end of each was reached in this epoch.
        plan: after positions of another number of workers, what the worker reads in this epoch: units; with
            shuffle="full" what all workers have given, see `tarkit.loading.order.left_of`.
        later: the same for epochs that follow, as far as a worker had begun them: number, plan, `taken`, `given`.
        block: with shuffle="full", how many samples in order go to one worker; 0 before the first sample.
    """

    epoch: int
    epochs: int | None
    following: int
    given: int = 0
    opened: int = 0
    open: tuple[Unit, ...] = ()
    buffer: tuple[tuple[int, int], ...] = ()
    random: str | None = None
    taken: tuple[tuple[int, int], ...] = ()
    skip: int = 0
    passed: int = 0
    marks: str = ""
    sources: tuple[Progress, ...] = ()
    drawn: tuple[int, ...] = ()
    passes: tuple[int, ...] = ()
    plan: Plan | None = None
    later: tuple[Plan, ...] = ()
    block: int = 0

    def resolved(self) -> Self:
        """Return the position at the start of an epoch with what there is of it in `later`."""
        later = tuple(entry for entry in self.later if time_of(entry[0]) > time_of(self.epoch))
        for epoch, plan, taken, given in self.later:
            if epoch == self.epoch:
                return self._replace(plan=plan, taken=taken, given=given, later=later)
        return self._replace(later=later)

    def as_json(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        """Return the position as values of JSON; `identity` is that of the loader."""
        return {"version": VERSION, **identity, **self._plain()}

    def _plain(self) -> dict[str, Any]:
        values = self._asdict()
        lists = {name: _as_lists(values[name]) for name in _LISTS}
        return {**values, **lists, "sources": [source._plain() for source in self.sources]}

    @classmethod
    def of_json(cls, state: Mapping[str, Any], identity: Mapping[str, Any]) -> Self:
        """Return the position that `as_json` has written. Raises Usage if it is one in something else, or damaged."""
        if not isinstance(state, Mapping) or not isinstance(state.get("version"), int):
            raise Usage("this is not the state of a loader", "load what state_dict has returned")
        if state["version"] != VERSION:
            words = f"the state of a loader has the form {state['version']}, and this tarkit reads the form {VERSION}"
            raise Usage(words, "resume with the tarkit that stored it, or begin an epoch: set_epoch")
        for name, own in identity.items():
            if (other := state.get(name)) != own:
                hint = "resume with the shards, steps, seed and numbers of nodes and workers that it was made with"
                if name in WorkerPlace._fields:  # the last that are compared: all else is the same
                    hint = "the states of all workers together continue on any number: load_state_dict([state, ...])"
                raise Usage(f"the state is that of another loader: its {name} is {other!r}, not {own!r}", hint)
        try:
            return cls._parse(state, state["shards"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Usage(f"the state of a loader is damaged: {error!r}") from None

    @classmethod
    def _parse(cls, state: Mapping[str, Any], shards: int) -> Self:
        progress = cls(**{name: state[name] for name in cls._fields})
        progress = progress._replace(**{name: _as_tuples(getattr(progress, name)) for name in _LISTS})
        for name, forms in _FORMS.items():
            if not any(_has_form(getattr(progress, name), form) for form in forms):
                raise ValueError(f"{name} is {state[name]!r}")
        if progress.random is not None:
            restore_random(Random(), progress.random)
        parse_marks(progress.marks, shards)
        return progress._replace(sources=tuple(cls._parse(source, shards) for source in state["sources"]))


def _has_form(value: Any, form: Any) -> bool:
    """Return whether a value has a form, as `_FORMS` has it."""
    if form is None:
        return value is None
    if form in (int, _END):
        return type(value) is int and (0 if form is int else _END) <= value <= maxsize
    if type(value) is not tuple:
        return False
    if isinstance(form, list):
        return all(any(_has_form(each, one) for one in form) for each in value)
    return len(value) == len(form) and all(map(_has_form, value, form))


def _as_lists(value: Any) -> Any:
    return list(map(_as_lists, value)) if isinstance(value, (tuple, list)) else value


def _as_tuples(value: Any) -> Any:
    """Return lists of whole numbers, in any depth, as tuples. Raises TypeError for other values."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_as_tuples, value))
    if value is not None and type(value) is not int:
        raise TypeError(f"{value!r} in a plan")
    return value


def store_random(random: Random) -> str:
    """Return the state of random numbers as text."""
    return b64encode(pack(_WORDS, *random.getstate()[1])).decode()


def restore_random(random: Random, state: str) -> None:
    """Continue with a state that `store_random` has returned."""
    words = b64decode(state, validate=True)
    if len(words) != 2500:
        raise ValueError(f"{plural(len(words), 'byte')} of random state")
    random.setstate((3, unpack(_WORDS, words), None))
