"""The join of two inputs: what meets what, kept as tuples that the inputs can replay."""
