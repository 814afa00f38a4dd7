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
    from tarkit.checking.check import Report as Report
    from tarkit.checking.check import check as check
    from tarkit.checking.diff import Difference as Difference
    from tarkit.checking.findings import Finding as Finding
    from tarkit.cluster.api import write_on_cluster as write_on_cluster
    from tarkit.dataset import Dataset as Dataset
    from tarkit.dataset import DecodedDataset as DecodedDataset
    from tarkit.dataset import open as open
    from tarkit.dataset import stats as stats
    from tarkit.decoding.batch import decode_batch as decode_batch
    from tarkit.decoding.picture import picture as picture
    from tarkit.decoding.random_numbers import sample_random as sample_random
    from tarkit.decoding.sound import sound as sound
    from tarkit.decoding.video import video as video
    from tarkit.display.census import Share as Share
    from tarkit.display.inspect import FieldStats as FieldStats
    from tarkit.display.inspect import Stats as Stats
    from tarkit.errors import Problem as Problem
    from tarkit.errors import TarkitError as TarkitError
    from tarkit.errors import TarkitWarning as TarkitWarning
    from tarkit.errors import Unsupported as Unsupported
    from tarkit.errors import Usage as Usage
    from tarkit.indexing.index import index as index
    from tarkit.indexing.index import verify_index as verify_index
    from tarkit.indexing.indexed import DecodedIndex as DecodedIndex
    from tarkit.indexing.indexed import IndexedDataset as IndexedDataset
    from tarkit.jobs.engine import JobSummary as JobSummary
    from tarkit.jobs.map_shards import map_shards as map_shards
    from tarkit.loading.loader import Loader as Loader
    from tarkit.loading.loader import loader as loader
    from tarkit.loading.settings import LoaderOptions as LoaderOptions
    from tarkit.mixing.mix import mix as mix
    from tarkit.packing.create import create as create
    from tarkit.packing.shard import shard as shard
    from tarkit.pipeline.sample import DecodedSample as DecodedSample
    from tarkit.pipeline.sample import Sample as Sample
    from tarkit.proc.step import WorkOptions as WorkOptions
    from tarkit.query.sql import sql as sql
    from tarkit.samples.items import EntryName as EntryName
    from tarkit.shards.from_values import ShardWriter as ShardWriter
    from tarkit.shards.from_values import TarWriter as TarWriter
    from tarkit.shards.writer import Shard as Shard
    from tarkit.sorting.keys import Disorder as Disorder

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
