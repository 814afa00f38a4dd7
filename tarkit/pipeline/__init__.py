"""The algebra: an origin of samples, the steps that they go through, and the outputs that take them."""
