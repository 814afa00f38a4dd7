"""The content of fields: detect its kind, parse its header, decode and encode its value."""
