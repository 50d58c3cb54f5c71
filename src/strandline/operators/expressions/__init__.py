"""Expressions over columns, and the stateless work that is written with them."""
