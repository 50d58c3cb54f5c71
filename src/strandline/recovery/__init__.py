"""Getting back: the eventual checkpoint, replay, the local state cache."""
