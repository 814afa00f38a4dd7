"""Jobs: one command line, or one call, for each of many values; run by an executor, recorded in a journal, resumed."""

SIGNS = ("{stem", "{name", "{dir", "{index")
"""How placeholders of values begin: `values` fills them in. Each command line is searched for them."""
