"""Several sources drawn from by their weights."""
