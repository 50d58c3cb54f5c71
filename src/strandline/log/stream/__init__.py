"""The stream itself: blocks, commits, and the state that they add up to."""
