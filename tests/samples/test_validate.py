"""Checks of names that are written: samples/validate.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tarkit.samples.validate import NameChecks
from tarkit.tables.recipe import MalformedRow

NAMES = st.lists(st.text("ab./\0", max_size=8).map(str.encode), min_size=1, max_size=4)
COMMON = st.lists(
    st.builds("{}{}.{}".format, st.sampled_from(["", "d/"]), st.sampled_from("abc"), st.sampled_from("xy"))
)


def facts(names: NameChecks) -> tuple[object, ...]:
    """Return what is known of the names so far."""
    return names.samples, names.first, names.last


@given(st.lists(NAMES | COMMON.filter(bool).map(lambda each: [name.encode() for name in each]), max_size=4))
def test_many_together(batches: list[list[bytes]]) -> None:
    """Names that are accepted together are those that pass one by one, and they count as such."""
    together, alone = NameChecks(limit=None), NameChecks(limit=None)
    for batch in batches:
        before = facts(together)
        accepted = together.accept(batch)
        assert accepted or facts(together) == before
        try:
            for name in batch:
                alone.check(name)
                if not accepted:
                    together.check(name)
        except MalformedRow:
            assert not accepted
            return
        assert facts(together) == facts(alone)


def test_accepted() -> None:
    """Batches of common names are accepted, whatever the order of their keys, and then known."""
    names = NameChecks(limit=None)
    assert names.accept([b"d/b.jpg", b"d/b.cls", b"d/c.seg.png"])
    assert names.accept([b"a.x"])
    assert facts(names) == (3, b"d/b", b"a")
    for again in (b"a.x", b"a.y", b"d/b.png"):
        assert not names.accept([b"e.x", again])
    assert facts(names) == (3, b"d/b", b"a")
