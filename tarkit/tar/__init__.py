"""The tar format: blocks, headers, PAX records, a reader and a writer of archives. Only `fast` depends on samples.

The accelerator, `fast`, also groups plain entries into samples, for `samples.groups.EntryGroups`.
"""
