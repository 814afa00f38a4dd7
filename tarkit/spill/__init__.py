"""Containers of any size: in memory while they are small, then in a temporary file without a name.

- `records.Records`: a list, read in the order of writing, as often as needed.
- `multimap.Multimap`: records (key, value), read grouped by key.

Elsewhere: `streams.ranges.RangeSpool` for byte ranges that are freed one by one, and the sorted runs of `sorting.runs`
for records to be read in the order of their keys.
"""
