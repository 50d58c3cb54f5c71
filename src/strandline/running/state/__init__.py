"""The local state of a partition between two batches. It is a cache: the log is the truth."""
