"""Containers of any size: in memory while they are small, then in a temporary file without a name.

- `records.SpilledList`: a list, read in the order of writing, as often as needed; `records.by_rank`: sorted pairs.
- `multimap.Multimap`: records (key, value), read grouped by key.

- `runs.SortedRuns`: records in the order of their bytes, read as often as needed; `sorting.runs` has those of samples.

Elsewhere: `streams.ranges.RangeSpool` for byte ranges that are freed one by one.
"""
