"""What is wrong with shards, alone and together, and clean copies of them."""
