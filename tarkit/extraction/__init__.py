"""Extraction of samples to files, confined to one directory."""
