"""Contents of fields: their kind, what their headers say, and values decoded and encoded."""
