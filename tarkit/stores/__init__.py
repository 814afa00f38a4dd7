"""URLs of inputs and outputs: a table of schemes, and one module for each kind of store."""
