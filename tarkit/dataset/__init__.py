"""The convention: keys, fields, samples and shards."""
