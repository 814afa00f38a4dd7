"""What is done about an exception of a stage: true goes on, false ends the samples."""

from __future__ import annotations

import warnings

from tarkit.wds.filters import reraise_exception

__all__ = ["ignore_and_continue", "ignore_and_stop", "reraise_exception", "warn_and_continue", "warn_and_stop"]


def ignore_and_continue(error: Exception) -> bool:
    """Leave the sample, or the rest of the shard, out."""
    return True


def warn_and_continue(error: Exception) -> bool:
    """Leave the sample, or the rest of the shard, out, with a warning."""
    warnings.warn(repr(error), stacklevel=2)
    return True


def ignore_and_stop(error: Exception) -> bool:
    """End the samples."""
    return False


def warn_and_stop(error: Exception) -> bool:
    """End the samples, with a warning."""
    warnings.warn(repr(error), stacklevel=2)
    return False
