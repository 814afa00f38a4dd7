"""Choose samples: by keys, lists of keys, expressions, at random, by position; in batches."""
