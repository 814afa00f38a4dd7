"""The first steps of a command line, before its modules are loaded."""

import os
import sys

from tarkit import __version__


def main() -> None:
    """Run the command line of this process and exit. The version alone is printed before anything else is loaded."""
    words = sys.argv[1:]
    if words[:1] != ["--version"] or words[1:] not in ([], ["-v"], ["--verbose"]) or not _print_version(len(words) > 1):
        import gc

        gc.disable()  # until the modules of the command are loaded: to look for garbage meanwhile takes 5 % of a start
        from tarkit.cli import main as run

        run()


def _print_version(verbose: bool) -> bool:
    """Print the version, and if `verbose` further facts for a report. Return whether that was possible."""
    lines = [f"tarkit {__version__}"]
    if verbose:
        from tarkit.tar.fast import used

        lines += [f"Python {sys.version.split()[0]} on {sys.platform}", f"accelerator: {used()}"]
    text = "".join(f"{line}\n" for line in lines)
    try:
        return os.write(1, text.encode()) == len(text)
    except OSError:  # click's way reports it
        return False
