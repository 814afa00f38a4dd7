"""The format: tar blocks, headers and entries. Pure functions on bytes; no files, no samples."""
