"""tarkit: tar streams of machine-learning samples, on the command line and in Python.

>>> import tarkit
>>> with tarkit.open("train-{0..1}.tar") as data:
...     for sample in data.where("cls == 3"):
...         sample.key, sample["jpg"]
('a/0', b'one')
('b/0', b'two')

A name is loaded when it is used for the first time.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing itself takes a while to load

if TYPE_CHECKING:
    from tarkit.api.check import Report as Report
    from tarkit.api.check import check as check
    from tarkit.api.create import create as create
    from tarkit.api.dataset import Dataset as Dataset
    from tarkit.api.dataset import DecodedDataset as DecodedDataset
    from tarkit.api.dataset import open as open
    from tarkit.api.dataset import stats as stats
    from tarkit.api.index import index as index
    from tarkit.api.index import verify_index as verify_index
    from tarkit.api.indexed import DecodedIndex as DecodedIndex
    from tarkit.api.indexed import IndexedDataset as IndexedDataset
    from tarkit.api.inspect import FieldStats as FieldStats
    from tarkit.api.inspect import Stats as Stats
    from tarkit.api.map import WorkOptions as WorkOptions
    from tarkit.api.mix import mix as mix
    from tarkit.api.sample import DecodedSample as DecodedSample
    from tarkit.api.sample import Sample as Sample
    from tarkit.api.tree.plan import Plan as Plan
    from tarkit.api.tree.plan import load_plan as load_plan
    from tarkit.api.tree.plan import plan as plan
    from tarkit.api.writers import ShardWriter as ShardWriter
    from tarkit.api.writers import TarWriter as TarWriter
    from tarkit.checking.findings import Finding as Finding
    from tarkit.cluster.api import write_on_cluster as write_on_cluster
    from tarkit.errors import Problem as Problem
    from tarkit.errors import TarkitError as TarkitError
    from tarkit.errors import TarkitWarning as TarkitWarning
    from tarkit.errors import Unsupported as Unsupported
    from tarkit.errors import Usage as Usage
    from tarkit.inspecting.census import Share as Share
    from tarkit.inspecting.item import EntryName as EntryName
    from tarkit.jobs.engine import JobSummary as JobSummary
    from tarkit.jobs.map_shards import map_shards as map_shards
    from tarkit.loading.loader import Loader as Loader
    from tarkit.loading.loader import loader as loader
    from tarkit.loading.settings import LoaderOptions as LoaderOptions
    from tarkit.shards.writer import Shard as Shard
    from tarkit.sorting.audit import Audit as Audit
    from tarkit.sorting.keys import Disorder as Disorder

_MODULES = {
    "Audit": "tarkit.sorting.audit",
    "Dataset": "tarkit.api.dataset",
    "DecodedDataset": "tarkit.api.dataset",
    "DecodedIndex": "tarkit.api.indexed",
    "DecodedSample": "tarkit.api.sample",
    "Disorder": "tarkit.sorting.keys",
    "EntryName": "tarkit.inspecting.item",
    "FieldStats": "tarkit.api.inspect",
    "Finding": "tarkit.checking.findings",
    "IndexedDataset": "tarkit.api.indexed",
    "JobSummary": "tarkit.jobs.engine",
    "Loader": "tarkit.loading.loader",
    "LoaderOptions": "tarkit.loading.settings",
    "Plan": "tarkit.api.tree.plan",
    "Problem": "tarkit.errors",
    "Report": "tarkit.api.check",
    "Sample": "tarkit.api.sample",
    "Shard": "tarkit.shards.writer",
    "ShardWriter": "tarkit.api.writers",
    "Share": "tarkit.inspecting.census",
    "Stats": "tarkit.api.inspect",
    "TarWriter": "tarkit.api.writers",
    "TarkitError": "tarkit.errors",
    "TarkitWarning": "tarkit.errors",
    "Unsupported": "tarkit.errors",
    "Usage": "tarkit.errors",
    "WorkOptions": "tarkit.api.map",
    "check": "tarkit.api.check",
    "create": "tarkit.api.create",
    "index": "tarkit.api.index",
    "load_plan": "tarkit.api.tree.plan",
    "loader": "tarkit.loading.loader",
    "map_shards": "tarkit.jobs.map_shards",
    "mix": "tarkit.api.mix",
    "open": "tarkit.api.dataset",
    "plan": "tarkit.api.tree.plan",
    "stats": "tarkit.api.dataset",
    "verify_index": "tarkit.api.index",
    "write_on_cluster": "tarkit.cluster.api",
}

__all__ = [
    "Audit",
    "Dataset",
    "DecodedDataset",
    "DecodedIndex",
    "DecodedSample",
    "Disorder",
    "EntryName",
    "FieldStats",
    "Finding",
    "IndexedDataset",
    "JobSummary",
    "Loader",
    "LoaderOptions",
    "Plan",
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
    "index",
    "load_plan",
    "loader",
    "map_shards",
    "mix",
    "open",
    "plan",
    "stats",
    "verify_index",
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
