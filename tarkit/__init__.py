"""tarkit: a command-line toolkit for tar streams of machine-learning samples."""

__version__ = "0.1.0"
