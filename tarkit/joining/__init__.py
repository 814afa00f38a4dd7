"""Samples and tables: rows that go with samples by key, and fields that columns become."""
