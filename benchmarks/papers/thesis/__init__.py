"""The figures of this paper, one experiment a file."""
