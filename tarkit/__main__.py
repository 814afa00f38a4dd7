"""Where `tarkit` and `python -m tarkit` begin."""

# `signal` itself takes a while to load, and these are there.
from _signal import SIG_DFL, SIGINT, default_int_handler, getsignal, signal  # type: ignore[import-not-found]

# While modules load there is nothing to clean up yet: a Ctrl-C ends us at once, and not with a traceback.
if getsignal(SIGINT) is default_int_handler:
    signal(SIGINT, SIG_DFL)

from tarkit.cli import main

if __name__ == "__main__":
    main()
