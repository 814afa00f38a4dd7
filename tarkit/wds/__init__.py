"""webdataset's pipelines over tarkit's reader: programs run with one changed import.

Samples, their order for a seed, and values are those of webdataset 1.0.2, with which the tests compare. Inputs are all
that `tarkit.open` reads. What differs: pickles are decoded with `decode(allow_pickle=True)` only, a shard that ends
early is an error, and writers give the same bytes for the same samples. To store a position, use `tarkit.loader`.
"""

from __future__ import annotations

from typing import Any

from tarkit.wds import utils
from tarkit.wds.decoding import Continue, SampleDecoder, decode, handle_extension
from tarkit.wds.filters import (
    associate,
    batched,
    default_collation_fn,
    extract_keys,
    getfirst,
    info,
    listed,
    map,
    map_dict,
    map_tuple,
    pipelinefilter,
    rename,
    rename_keys,
    rsample,
    select,
    shuffle,
    slice,
    to_tuple,
    unbatched,
    unlisted,
)
from tarkit.wds.handlers import (
    ignore_and_continue,
    ignore_and_stop,
    reraise_exception,
    warn_and_continue,
    warn_and_stop,
)
from tarkit.wds.mix import RandomMix, RoundRobin
from tarkit.wds.pipeline import (
    DataPipeline,
    FluidInterface,
    FluidWrapper,
    PipelineStage,
    WebDataset,
    WebLoader,
    check_empty,
)
from tarkit.wds.pipeline import EpochShuffle as detshuffle
from tarkit.wds.shardlists import (
    ResampledShards,
    SimpleShardList,
    expand_urls,
    single_node_only,
    split_by_node,
    split_by_worker,
)
from tarkit.wds.tariterators import tarfile_to_samples
from tarkit.wds.writer import ShardWriter, TarWriter

__all__ = [
    "Continue",
    "DataPipeline",
    "FluidInterface",
    "FluidWrapper",
    "PipelineStage",
    "RandomMix",
    "ResampledShards",
    "RoundRobin",
    "SampleDecoder",
    "ShardWriter",
    "SimpleShardList",
    "TarWriter",
    "WebDataset",
    "WebLoader",
    "associate",
    "batched",
    "check_empty",
    "decode",
    "default_collation_fn",
    "detshuffle",
    "expand_urls",
    "extract_keys",
    "getfirst",
    "handle_extension",
    "ignore_and_continue",
    "ignore_and_stop",
    "info",
    "listed",
    "map",
    "map_dict",
    "map_tuple",
    "pipelinefilter",
    "rename",
    "rename_keys",
    "reraise_exception",
    "rsample",
    "select",
    "shuffle",
    "single_node_only",
    "slice",
    "split_by_node",
    "split_by_worker",
    "tarfile_to_samples",
    "to_tuple",
    "unbatched",
    "unlisted",
    "utils",
    "warn_and_continue",
    "warn_and_stop",
]

__version__ = "1.0.2"  # of webdataset, whose names and samples these are

_ELSEWHERE = {
    "autodecode": "decode(...) takes functions and forms of pictures",
    "imagehandler": "decode('rgb') decodes pictures",
    "torch_loads": "decode(allow_pickle=True) decodes pth",
    "cache": "cache_dir= keeps objects of stores",
    "lmdb_cached": "cache_dir= keeps objects of stores",
    "gopen": "tarkit.open reads all URLs",
    "gopen_schemes": "tarkit.open reads all URLs; pipe:COMMAND is any command",
    "torch_audio": "decode() gives arrays of sound with the extra sound",
    "torch_video": "handle_extension('mp4', function) decodes by any library",
    "Cached": "list(pipeline) keeps samples; cache_dir= keeps objects of stores",
    "LMDBCached": "cache_dir= keeps objects of stores",
    "xdecode": "decode(handle_extension(...)) decodes by functions",
    "MultiShardSample": "tarkit.mix draws from several sets by weights",
    "resampled": "WebDataset(resampled=True) draws shards",
    "log_keys": "info(fmt='{__key__}', every=1) prints keys",
}


def __getattr__(name: str) -> Any:
    """Raise AttributeError, which names another way where webdataset has such a name."""
    way = f": {_ELSEWHERE.get(name, 'its names are those of pipelines, stages, lists of shards and writers')}"
    raise AttributeError(f"module 'tarkit.wds' has no attribute {name!r}{way}", name=name)
