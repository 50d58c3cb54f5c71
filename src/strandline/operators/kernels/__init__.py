"""The ground of compiled loops: their cache, their arrays, keys and words."""
