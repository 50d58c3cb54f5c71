"""What compiled loops stand on: their cache, their arrays, keys and words."""
