"""Where `tarkit` and `python -m tarkit` begin."""

import signal

# While modules load there is nothing to clean up yet: a Ctrl-C ends us at once, and not with a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from tarkit.cli import main

if __name__ == "__main__":
    main()
