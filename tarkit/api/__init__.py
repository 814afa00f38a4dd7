"""The Python API: what `import tarkit` offers, and what the commands are built from."""
