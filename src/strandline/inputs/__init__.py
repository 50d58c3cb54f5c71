"""Inputs of operators: one stream, several that are serialised into one, or replicas."""
