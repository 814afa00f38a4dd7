"""`python -m tarkit` is the command `tarkit`."""

from tarkit.cli import main

main()
