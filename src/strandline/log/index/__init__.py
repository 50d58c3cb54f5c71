"""The index: finds every block of a stream by offset or time."""
