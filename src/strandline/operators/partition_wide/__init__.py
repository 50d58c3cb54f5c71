"""Operators that users write as classes: one object a partition, any Python inside, its state saved whole."""
