"""The table of schemes says what the stores do."""

from __future__ import annotations

import pytest

pytest.importorskip("obstore")

from tarkit.errors import Unsupported
from tarkit.stores import connect
from tarkit.stores.schemes import SCHEMES
from tarkit.stores.store import StoreOptions
from tests._tools import each_row

URLS = {"hf": "hf://datasets/org/name/a.tar"}


@each_row("name", sorted(SCHEMES))
def test_rows(name: str) -> None:
    """Each module has the settings of its schemes; what cannot be written or listed is refused without a request."""
    scheme, url = SCHEMES[name], URLS.get(name, f"{name}://bucket/a.tar")
    assert connect._module(scheme).settings(name) is not None
    store = connect.store_of(url, StoreOptions())
    if not scheme.writable:
        with pytest.raises(Unsupported):
            store.put(url, False)
        with pytest.raises(Unsupported):
            store.delete(url)
    if not scheme.listed:
        with pytest.raises(Unsupported):
            next(store.list(url, None))
