"""A process that has threads of a library is not copied."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("obstore")


def test_native_threads_are_known() -> None:
    """A process that has those of obstore is not copied; the count of Python's threads stays right."""
    program = """
import threading
from tarkit.parallel import results_in_order
from tarkit.stores import connect
from tarkit.stores.store import StoreOptions
from tarkit.threads import has_threads
import os
print(has_threads(), set(results_in_order(lambda job: os.getpid(), range(9), 2)) == {os.getpid()})
store = connect.store_of("s3://bucket/a", StoreOptions(anonymous=True))
store._bucket_of("s3://bucket/a")
print(has_threads(), set(results_in_order(lambda job: os.getpid(), range(9), 2)) == {os.getpid()})
print(threading.active_count())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("False False\nTrue True\n1\n", "")
