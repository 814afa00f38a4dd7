"""SQL over archives, views and tables, by DuckDB."""
