"""Zips as tar archives, both ways."""
