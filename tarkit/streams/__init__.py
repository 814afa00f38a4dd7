"""The bytes: where they come from, where they go to, how they move. Knows nothing of tar."""
