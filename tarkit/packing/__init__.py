"""From a directory tree to shards: list files, group them into samples, plan the shards, write them."""
