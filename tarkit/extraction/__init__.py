"""Samples as files in a directory, and nothing outside of it."""
