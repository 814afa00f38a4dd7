"""The files of a spill: what is not what was written is an error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tarkit.cluster.records import OrderedSample, file_name, read_order
from tarkit.cluster.shared import Spill
from tarkit.errors import TarkitError


def test_orders_of_two_spans_that_are_swapped(here: Path) -> None:
    """A record of another span is an error, although its checksum is that of its bytes."""
    spill = Spill("spill")
    spill.begin()
    for span in (0, 1):
        with spill.create(file_name("order", span)) as sink:
            for number in range(3):
                record = OrderedSample(False, 0, 1, 10 * span + number, 5, bytes(16))
                sink.write(record.pack(span))
    found = [sample.offset for sample in read_order(spill, 1, 0, 3)]
    assert found == [10, 11, 12]
    paths = [spill.path(file_name("order", span)) for span in (0, 1)]
    os.rename(paths[0], "other")
    os.rename(paths[1], paths[0])
    os.rename("other", paths[1])
    for span in (0, 1):
        with pytest.raises(TarkitError, match=file_name("order", span)):
            list(read_order(spill, span, 0, 3))
