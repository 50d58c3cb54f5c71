"""Barriers: per key, the n-th tuples of all inputs together."""
