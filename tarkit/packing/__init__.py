"""Archives from files: shards of a tree (`shard`: list, group, plan, write), and a recipe or a table (`create`)."""
