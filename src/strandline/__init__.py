"""Strandline."""
