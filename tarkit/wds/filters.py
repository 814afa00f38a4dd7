"""The stages of webdataset's pipelines: functions from samples to samples, by webdataset's names.

`shuffle(1000)` makes a stage; a pipeline calls it with the samples: dicts, or what stages before made of them.
The facts are those of webdataset 1.0.2, with which the tests compare. `handler` gets an exception: if it returns true,
the sample is left out, and if it returns false, the samples end.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import wraps
from typing import Any

from tarkit.pipeline.stages import ShuffleBuffer

Samples = Iterator[Any]
Handler = Callable[[Exception], bool]


def reraise_exception(error: Exception) -> bool:
    """Raise an exception again: the handler of all stages by default."""
    raise error


class Stage:
    """A function of samples with its other arguments. It can be pickled if these can."""

    def __init__(self, function: str | Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Set the function: one of this module by its name."""
        self._function = function
        self._args = args
        self._options = options

    def __call__(self, samples: Samples) -> Samples:
        """Return the samples behind the stage."""
        function = FUNCTIONS[self._function] if isinstance(self._function, str) else self._function
        return iter(function(samples, *self._args, **self._options))

    def __repr__(self) -> str:
        name = self._function if isinstance(self._function, str) else self._function.__name__
        words = [*(repr(value) for value in self._args), *(f"{key}={value!r}" for key, value in self._options.items())]
        return f"{name}({', '.join(words)})"


FUNCTIONS: dict[str, Callable[..., Iterable[Any]]] = {}


def pipelinefilter(function: Callable[..., Iterable[Any]]) -> Callable[..., Stage]:
    """Return what makes a stage of a function, whose first argument is an iterator over samples."""

    @wraps(function)
    def make(*args: Any, **options: Any) -> Stage:
        return Stage(function, args, options)

    return make


def stage(function: Callable[..., Iterable[Any]]) -> Callable[..., Stage]:
    """Return what makes a stage of a function of tarkit, which a pipeline finds by its name in another process too."""
    FUNCTIONS[function.__name__] = function

    @wraps(function)
    def make(*args: Any, **options: Any) -> Stage:
        return Stage(function.__name__, args, options)

    return make


def _each(samples: Samples, function: Callable[[Any], Any], handler: Handler) -> Samples:
    """Yield what a function makes of each sample; None leaves it out."""
    for sample in samples:
        try:
            made = function(sample)
        except Exception as error:
            if handler(error):
                continue
            return
        if made is not None:
            yield made


def getfirst(
    sample: Mapping[str, Any], names: str | Sequence[str], default: Any = None, missing_is_error: bool = True
) -> Any:
    """Return the value of the first name that a sample has; names are a list, or have `;` between them.

    Raises:
        ValueError: there is none of them.
    """
    names = names.split(";") if isinstance(names, str) else names
    for name in names:
        if name in sample:
            return sample[name]
    if missing_is_error:
        raise ValueError(f"the sample {sample.get('__key__')!r} has no {' or '.join(names)}, but {', '.join(sample)}")
    return default


# ---- Order and number


@stage
def shuffle(
    samples: Samples,
    bufsize: int = 1000,
    initial: int = 100,
    rng: random.Random | None = None,
    seed: Any = None,
    handler: Handler | None = None,
) -> Samples:
    """Shuffle through a buffer, in webdataset's order for a seed."""
    if bufsize < 1:
        return samples
    return ShuffleBuffer(bufsize, initial, rng or random.Random(seed)).shuffle(samples)


_shuffle = FUNCTIONS["shuffle"]  # which programs import for stages of their own


@stage
def slice(samples: Samples, *args: int | None) -> Samples:
    """Take samples by number, as `itertools.islice` does."""
    return itertools.islice(samples, *args)


@stage
def select(samples: Samples, predicate: Callable[[Any], Any]) -> Samples:
    """Take samples for which a function returns true."""
    return filter(predicate, samples)


@stage
def rsample(samples: Samples, p: float = 0.5) -> Samples:
    """Take each sample with probability p."""
    return (sample for sample in samples if random.random() < p)


# ---- Fields


@stage
def map(samples: Samples, f: Callable[[Any], Any], handler: Handler = reraise_exception) -> Samples:
    """Call a function with each sample; None leaves it out. A dict that is made of a dict keeps the key."""

    def mapped(sample: Any) -> Any:
        made = f(sample)
        if isinstance(sample, dict) and isinstance(made, dict):
            made["__key__"] = sample.get("__key__")
        return made

    return _each(samples, mapped, handler)


@stage
def map_dict(samples: Samples, handler: Handler = reraise_exception, **functions: Callable[[Any], Any]) -> Samples:
    """Replace values of fields by what functions make of them."""

    def mapped(sample: dict[str, Any]) -> dict[str, Any]:
        for name, function in functions.items():
            sample[name] = function(sample[name])
        return sample

    return _each(samples, mapped, handler)


@stage
def map_tuple(samples: Samples, *args: Callable[[Any], Any] | None, handler: Handler = reraise_exception) -> Samples:
    """Replace the values of tuples by what functions make of them, in order; None keeps a value."""

    def mapped(sample: Sequence[Any]) -> tuple[Any, ...]:
        pairs = itertools.zip_longest(sample, args[: len(sample)])
        return tuple(value if function is None else function(value) for value, function in pairs)

    return _each(samples, mapped, handler)


@stage
def to_tuple(
    samples: Samples,
    *args: str,
    handler: Handler = reraise_exception,
    missing_is_error: bool = True,
    none_is_error: bool | None = None,
) -> Samples:
    """Make tuples of fields: names, or one text with blanks between them, and `;` between alternatives."""
    words = args[0].split() if len(args) == 1 and isinstance(args[0], str) else args
    refused = missing_is_error if none_is_error is None else none_is_error

    def picked(sample: Mapping[str, Any]) -> tuple[Any, ...]:
        values = tuple([getfirst(sample, names, missing_is_error=missing_is_error) for names in words])
        if refused and any(value is None for value in values):
            raise ValueError(f"a value of {' '.join(words)} in the sample {sample.get('__key__')!r} is None")
        return values

    return _each(samples, picked, handler)


@stage
def rename(samples: Samples, handler: Handler = reraise_exception, keep: bool = True, **names: Any) -> Samples:
    """Rename fields: the new name, and the old ones with `;` between them. Without `keep` other fields are dropped."""
    choices = {new: old.split(";") if isinstance(old, str) else old for new, old in names.items()}
    replaced = {name for old in choices.values() for name in old}

    def renamed(sample: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in sample.items() if name not in replaced} if keep else {}
        return {**kept, **{new: getfirst(sample, old) for new, old in choices.items()}}

    return _each(samples, renamed, handler)


@stage
def rename_keys(
    samples: Samples,
    *args: tuple[str, str],
    keep_unselected: bool = False,
    must_match: bool = True,
    duplicate_is_error: bool = True,
    **names: str,
) -> Samples:
    """Rename fields by globs, of which the last that matches counts: pairs of the new name and the glob."""
    rules = [*args, *names.items()]
    for sample in samples:
        renamed: dict[str, Any] = {}
        matched = set()
        for field, value in sample.items():
            rule = next((rule for rule in rules[::-1] if fnmatch(field.rpartition("/")[2].lower(), rule[1])), None)
            if rule is None:
                if keep_unselected:
                    renamed[field] = value
                continue
            matched.add(rule[1])
            if rule[0] not in renamed:
                renamed[rule[0]] = value
            elif duplicate_is_error:
                raise ValueError(f"two fields of the sample {sample.get('__key__')!r} would be {rule[0]}")
        if must_match and len(matched) < len({pattern for _, pattern in rules}):
            raise ValueError(f"the sample {sample.get('__key__')!r} has no field for each of the globs")
        yield renamed


@stage
def extract_keys(
    samples: Samples, *args: str, duplicate_is_error: bool = True, ignore_missing: bool = False
) -> Samples:
    """Make tuples of fields by globs, with `;` between alternatives."""
    for sample in samples:
        values = []
        for globs in args:
            words = globs.split(";")
            fits = [name for name in sample if any(fnmatch("." + name, word) or fnmatch(name, word) for word in words)]
            if not fits and ignore_missing:
                continue
            if not fits or (len(fits) > 1 and duplicate_is_error):
                which = "no field" if not fits else "several fields"
                raise ValueError(f"the sample {sample.get('__key__')!r} has {which} for {globs}: {', '.join(sample)}")
            values.append(sample[fits[0]])
        yield tuple(values)


@stage
def associate(samples: Samples, associator: Any) -> Samples:
    """Add the fields that a dict, or a function of the key, has for a sample."""
    for sample in samples:
        key = sample["__key__"]
        sample.update(associator(key) if callable(associator) else associator.get(key, {}))
        yield sample


# ---- Batches


def combine_values(values: list[Any], combine_tensors: bool = True, combine_scalars: bool = True) -> Any:
    """Return the values of a batch: numbers as an array, arrays and tensors as one, others as a list."""
    first, torch = values[0], sys.modules.get("torch")
    tensor = torch is not None and isinstance(first, torch.Tensor)
    array = hasattr(first, "__array_interface__") and hasattr(first, "shape") and not tensor
    if (array or tensor) and combine_tensors:
        shapes = {value.shape for value in values}
        if len(shapes) > 1:
            raise ValueError(f"arrays of different shapes cannot be in one batch: {sorted(shapes)}")
        if tensor:
            return torch.stack(values)  # type: ignore[union-attr]
    if (array and combine_tensors) or (isinstance(first, (int, float)) and combine_scalars):
        import numpy

        return numpy.array(values)
    return values


def default_collation_fn(samples: list[Any], combine_tensors: bool = True, combine_scalars: bool = True) -> Any:
    """Return a batch of dicts or of tuples: a dict or a tuple of the values of each field.

    Raises:
        ValueError: samples have different fields, or arrays different shapes.
    """
    rows = [sample if isinstance(sample, dict) else dict(enumerate(sample)) for sample in samples]
    for row in rows:
        if row.keys() != rows[0].keys():
            raise ValueError(f"samples of a batch have different fields: {list(rows[0])} and {list(row)}")
    batch = {name: combine_values([row[name] for row in rows], combine_tensors, combine_scalars) for name in rows[0]}
    return batch if isinstance(samples[0], dict) else tuple(batch.values())


@stage
def batched(
    samples: Samples,
    batchsize: float = 20,
    collation_fn: Callable[[list[Any]], Any] | None = default_collation_fn,
    partial: bool = True,
) -> Samples:
    """Make batches; the last may have fewer samples with `partial`. A size that is not whole is rounded up."""
    batchsize = math.ceil(batchsize)
    while batch := list(itertools.islice(samples, batchsize)):
        if len(batch) == batchsize or partial:
            yield batch if collation_fn is None else collation_fn(batch)


@stage
def listed(samples: Samples, batchsize: int, partial: bool = True) -> Samples:
    """Make lists of samples."""
    return FUNCTIONS["batched"](samples, batchsize, None, partial)  # type: ignore[return-value]


@stage
def unbatched(samples: Samples) -> Samples:
    """Take batches of tuples or dicts apart."""
    for batch in samples:
        if isinstance(batch, dict):
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(batch, values, strict=True))
        else:
            yield from zip(*batch, strict=True)


@stage
def unlisted(samples: Samples) -> Samples:
    """Take lists of samples apart."""
    return itertools.chain.from_iterable(samples)


# ---- To look at samples


@stage
def info(
    samples: Samples,
    fmt: str | None = None,
    n: int = 3,
    every: int = -1,
    width: int = 50,
    stream: Any = None,
    name: str = "",
) -> Samples:
    """Print the first `n` samples, and then one of `every`, to stderr."""
    out = sys.stderr if stream is None else stream
    for number, sample in enumerate(samples):
        if number < n or (every > 0 and (number + 1) % every == 0):
            lines = [f"{field} {repr(value)[:width]}" for field, value in sample.items()] if fmt is None else []
            out.write("\n".join([f"--- {name}", *lines] if fmt is None else [fmt.format(**sample)]) + "\n")
        yield sample
