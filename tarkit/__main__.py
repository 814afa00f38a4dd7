#!python
"""Where `python -m tarkit` begins, and `tarkit`: a wheel has this file as that script too."""

# `signal` itself takes a while to load, and these are there.
from _signal import SIG_DFL, SIGINT, default_int_handler, getsignal, signal  # type: ignore[import-not-found]

# While modules load there is nothing to clean up yet: a Ctrl-C ends us at once, and not with a traceback.
if getsignal(SIGINT) is default_int_handler:
    signal(SIGINT, SIG_DFL)

from tarkit.start import main

if __name__ == "__main__":
    main()
