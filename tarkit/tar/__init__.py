"""The tar format: blocks, headers, PAX records, and a reader and a writer of archives. Knows nothing of samples."""
