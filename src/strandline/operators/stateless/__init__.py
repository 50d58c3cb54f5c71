"""Operators without state: a filter, columns or a union as a stream. They recover by their position alone."""
