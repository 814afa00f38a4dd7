"""tarkit: tar streams of machine-learning samples, on the command line and in Python.

>>> import tarkit
>>> with tarkit.open("train-{0..1}.tar") as data:
...     for sample in data.where("cls == 3"):
...         sample.key, sample["jpg"]
('a/0', b'one')
('b/0', b'two')

A name is loaded when it is used for the first time.
"""

__version__ = "0.2.0"

TYPE_CHECKING = False  # typing itself takes a while to load

if TYPE_CHECKING:
    from tarkit.checking.check import Report, check
    from tarkit.checking.diff import Difference
    from tarkit.checking.findings import Finding
    from tarkit.cluster.api import write_on_cluster
    from tarkit.dataset import Dataset, DecodedDataset, open, stats
    from tarkit.decoding.batch import decode_batch
    from tarkit.decoding.picture import picture
    from tarkit.decoding.random_numbers import sample_random
    from tarkit.decoding.sound import sound
    from tarkit.decoding.video import video
    from tarkit.display.census import Share
    from tarkit.display.inspect import FieldStats, Stats
    from tarkit.errors import Problem, TarkitError, TarkitWarning, Unsupported, Usage
    from tarkit.indexing.index import index, verify_index
    from tarkit.indexing.indexed import DecodedIndex, IndexedDataset
    from tarkit.jobs.engine import JobSummary
    from tarkit.jobs.map_shards import map_shards
    from tarkit.loading.loader import Loader, loader
    from tarkit.loading.settings import LoaderOptions
    from tarkit.mixing.mix import mix
    from tarkit.packing.create import create
    from tarkit.packing.shard import shard
    from tarkit.pipeline.sample import DecodedSample, Sample
    from tarkit.proc.step import WorkOptions
    from tarkit.query.sql import sql
    from tarkit.samples.items import EntryName
    from tarkit.shards.from_values import ShardWriter, TarWriter
    from tarkit.shards.writer import Shard
    from tarkit.sorting.keys import Disorder

_MODULES = {
    "Dataset": "tarkit.dataset",
    "DecodedDataset": "tarkit.dataset",
    "DecodedIndex": "tarkit.indexing.indexed",
    "DecodedSample": "tarkit.pipeline.sample",
    "Difference": "tarkit.checking.diff",
    "Disorder": "tarkit.sorting.keys",
    "EntryName": "tarkit.samples.items",
    "FieldStats": "tarkit.display.inspect",
    "Finding": "tarkit.checking.findings",
    "IndexedDataset": "tarkit.indexing.indexed",
    "JobSummary": "tarkit.jobs.engine",
    "Loader": "tarkit.loading.loader",
    "LoaderOptions": "tarkit.loading.settings",
    "Problem": "tarkit.errors",
    "Report": "tarkit.checking.check",
    "Sample": "tarkit.pipeline.sample",
    "Shard": "tarkit.shards.writer",
    "ShardWriter": "tarkit.shards.from_values",
    "Share": "tarkit.display.census",
    "Stats": "tarkit.display.inspect",
    "TarWriter": "tarkit.shards.from_values",
    "TarkitError": "tarkit.errors",
    "TarkitWarning": "tarkit.errors",
    "Unsupported": "tarkit.errors",
    "Usage": "tarkit.errors",
    "WorkOptions": "tarkit.proc.step",
    "check": "tarkit.checking.check",
    "create": "tarkit.packing.create",
    "decode_batch": "tarkit.decoding.batch",
    "index": "tarkit.indexing.index",
    "loader": "tarkit.loading.loader",
    "map_shards": "tarkit.jobs.map_shards",
    "mix": "tarkit.mixing.mix",
    "open": "tarkit.dataset",
    "picture": "tarkit.decoding.picture",
    "sample_random": "tarkit.decoding.random_numbers",
    "shard": "tarkit.packing.shard",
    "sound": "tarkit.decoding.sound",
    "sql": "tarkit.query.sql",
    "stats": "tarkit.dataset",
    "verify_index": "tarkit.indexing.index",
    "video": "tarkit.decoding.video",
    "write_on_cluster": "tarkit.cluster.api",
}

__all__ = [
    "Dataset",
    "DecodedDataset",
    "DecodedIndex",
    "DecodedSample",
    "Difference",
    "Disorder",
    "EntryName",
    "FieldStats",
    "Finding",
    "IndexedDataset",
    "JobSummary",
    "Loader",
    "LoaderOptions",
    "Problem",
    "Report",
    "Sample",
    "Shard",
    "ShardWriter",
    "Share",
    "Stats",
    "TarWriter",
    "TarkitError",
    "TarkitWarning",
    "Unsupported",
    "Usage",
    "WorkOptions",
    "__version__",
    "check",
    "create",
    "decode_batch",
    "index",
    "loader",
    "map_shards",
    "mix",
    "open",
    "picture",
    "sample_random",
    "shard",
    "sound",
    "sql",
    "stats",
    "verify_index",
    "video",
    "write_on_cluster",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'tarkit' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
