"""Numbered shards: their names, how they are written, and which sample belongs to which series."""
