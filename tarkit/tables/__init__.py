"""Text that describes samples: recipes, tables, cells, and rules for make."""
