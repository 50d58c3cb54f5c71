"""The operators: windows, aggregates and their compiled kernels. No I/O, no clock, no Spark."""
