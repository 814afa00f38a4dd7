"""The command line: `main` and the table of commands, and what commands share."""

from tarkit.cli.app import group, main

__all__ = ["group", "main"]
