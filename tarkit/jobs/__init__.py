"""Jobs: one command line, or one call, for each of many values; run by an executor, recorded in a journal, resumed."""
