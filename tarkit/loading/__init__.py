"""Samples for training: shards divided among nodes and workers, shuffled and batched, and a position to resume from."""
