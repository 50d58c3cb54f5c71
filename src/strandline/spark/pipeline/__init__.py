"""Pipelines: several elements that are described, started, stopped and finished together."""
