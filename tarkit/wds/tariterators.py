"""From shards to samples as dicts: read by tarkit, with the names and values that webdataset gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tarkit.dataset import open as open_dataset
from tarkit.errors import TarkitError, show
from tarkit.streams.location import expand_inputs
from tarkit.wds.filters import Handler, reraise_exception, stage
from tarkit.wds.shardlists import Shard

Sample = dict[str, Any]

TWICE = ("scattered-sample", "repeated-key")
"""Problems that webdataset does not see: a key that comes back is another sample."""


@stage
def tarfile_to_samples(
    shards: Iterable[Shard],
    handler: Handler = reraise_exception,
    select_files: Callable[[str], bool] | None = None,
    rename_files: Callable[[str], str] | None = None,
    storage_options: Mapping[str, object] | None = None,
    local_path: bool = False,
) -> Iterator[Sample]:
    """Read the samples of shards: fields in lower case as bytes, `__key__` and `__url__`.

    Args:
        shards: dicts with `url`.
        handler: gets what is wrong with a shard; if it returns true, the next shard is read.
        select_files: whether a file is taken, by its name.
        rename_files: the new name of a file; both ways samples are grouped again.
        storage_options: as for `tarkit.open`.
        local_path: whether samples of files have `__local_path__`, as those of `WebDataset` do.
    """
    for shard in shards:
        samples = _samples(shard["url"], local_path, storage_options, select_files, rename_files)
        while True:
            try:
                sample = next(samples, None)
            except Exception as error:
                if handler(error):
                    break
                return
            if sample is None:
                break
            yield sample


def base_plus_ext(path: str) -> tuple[str, str] | tuple[None, None]:
    """Return the key and the field of a file by its name, or None for both where it is of no sample."""
    _, dot, field = path.rpartition("/")[2].partition(".")
    key = path[: len(path) - len(dot + field)]
    return (key, field) if dot and key else (None, None)


def valid_sample(sample: Sample | None) -> bool:
    """Return whether there is a sample."""
    return bool(sample)


def url_opener(shards: Iterable[Shard], handler: Handler = reraise_exception, **storage: object) -> Iterator[Shard]:
    """Open shards, for `tar_file_expander`: add what reads one as `stream`.

    Args:
        shards: dicts with `url`.
        handler: gets what is wrong with a name; if it returns true, the next shard is opened.
        storage: `storage_options` of `tarkit.open`.
    """
    for shard in shards:
        try:
            opened = {**shard, "stream": open_dataset(shard["url"], allow=TWICE, storage_options=storage or None)}
        except Exception as error:
            if handler(error):
                continue
            return
        yield opened


def tar_file_expander(
    shards: Iterable[Shard],
    handler: Handler = reraise_exception,
    select_files: Callable[[str], bool] | None = None,
    rename_files: Callable[[str], str] | None = None,
    eof_value: dict[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Read the files of shards: `fname`, `data`, and `__url__`.

    Args:
        shards: what `url_opener` yields.
        handler: gets what is wrong with a shard; if it returns true, the next shard is read.
        select_files: whether a file is taken, by its name.
        rename_files: the new name of a file.
        eof_value: what comes behind the files of a shard, if it is not None.
    """
    for shard in shards:
        try:
            with shard["stream"] as samples:
                for name, content in _files(samples, select_files, rename_files):
                    yield {"fname": name, "data": content, "__url__": shard["url"]}
        except Exception as error:
            if handler(error):
                continue
            return
        if eof_value is not None:
            yield eof_value


def _samples(
    url: str,
    local_path: bool,
    storage: Mapping[str, object] | None,
    select_files: Callable[[str], bool] | None,
    rename_files: Callable[[str], str] | None,
) -> Iterator[Sample]:
    where = {"__url__": url}
    if local_path and (path := expand_inputs([url], missing="all")[0]).kind == "path":
        where["__local_path__"] = path.text
    with open_dataset(url, allow=TWICE, storage_options=storage) as data:
        if select_files is not None or rename_files is not None:
            yield from _regrouped(data, where, select_files, rename_files)
            return
        for read in data:
            sample: Sample = {"__key__": read.key, **where}
            for name, content in read.items():
                _add(sample, name, content)
            yield sample


def _add(sample: Sample, name: str, content: bytes) -> None:
    """Add a field by its name in lower case; raise TarkitError if there is one."""
    name = name.lower()
    if name in sample:
        words = f"the sample {show(sample['__key__'])} has two fields {show(name)}"
        raise TarkitError(f"{sample['__url__']}: {words}", "rename one")
    sample[name] = content


def _regrouped(
    samples: Iterable[Any],
    where: Mapping[str, str],
    select_files: Callable[[str], bool] | None,
    rename_files: Callable[[str], str] | None,
) -> Iterator[Sample]:
    """Yield samples of the files that are taken, in their order, by their new names."""
    sample: Sample = {}
    for name, content in _files(samples, select_files, rename_files):
        key, field = base_plus_ext(name)
        if key is None or field is None:
            continue
        if sample and sample["__key__"] != key:
            yield sample
            sample = {}
        sample = sample or {"__key__": key, **where}
        _add(sample, field, content)
    if sample:
        yield sample


def _files(
    samples: Iterable[Any], select_files: Callable[[str], bool] | None, rename_files: Callable[[str], str] | None
) -> Iterator[tuple[str, bytes]]:
    """Yield the files that are taken, by their new names."""
    for sample in samples:
        for field, content in sample.items():
            name = f"{sample.key}.{field}"
            name = name if rename_files is None else rename_files(name)
            if select_files is None or select_files(name):
                yield name, content
