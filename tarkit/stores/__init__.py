"""Where URLs lead: a table of schemes, and one module for each kind of store."""
