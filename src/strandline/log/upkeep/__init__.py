"""Upkeep: compaction, retention, dropping of commits, consumers, backups."""
