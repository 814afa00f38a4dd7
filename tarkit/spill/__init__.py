"""Lists and maps of any length: in memory while they are small, then on disk."""
