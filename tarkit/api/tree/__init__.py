"""A directory tree into shards: `tarkit.plan`, and what the command `shard` is built from."""
