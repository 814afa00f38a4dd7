"""Index files beside shards: made, verified, and used to find samples."""
