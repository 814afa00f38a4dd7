"""Problems of shards, alone and together, and clean copies of shards."""
