"""Samples as messages, in CBOR and MessagePack files and through ZeroMQ, as tar archives, both ways."""
