"""Operators that users write: a function of the state of a key, a tuple and a place for results."""
