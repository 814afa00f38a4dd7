"""Rows of views as they are: batches of samples that were not read, in columns of Arrow, chosen by these."""
