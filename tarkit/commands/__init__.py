"""The policy: one file per command."""
