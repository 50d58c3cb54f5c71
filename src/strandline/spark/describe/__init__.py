"""Descriptions that users write: sources, windows, joins, operators, before anything runs."""
