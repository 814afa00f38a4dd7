"""Samples as tables: columns and rows in TSV, CSV, JSON, YAML and Parquet."""
