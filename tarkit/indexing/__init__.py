"""Index files of shards: write, verify, and use them to find samples."""
