"""Replicas of a stream: choosing one, reading it, changing over to another."""
