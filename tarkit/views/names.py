"""The names of the columns of views that tarkit knows."""

KEY, SHARD, START, STOP, MORE, FIELDS = "__key__", "__shard__", "__start__", "__stop__", "__more__", "__fields__"
REQUIRED = (KEY, SHARD, START, STOP)
PLACES = (*REQUIRED, MORE, FIELDS)
"""The columns that say where a sample lies; all others are values."""

INTO = "__into__"
"""The column of a view of `split` that has the shard of each sample: a value, as any other column."""
