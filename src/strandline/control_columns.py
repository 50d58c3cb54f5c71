"""The names of the columns that a stream has beside those of its tuples."""

OFFSET = "_offset"
"""The place of a tuple in its partition."""
KIND = "_kind"
PARTITION = "_partition"
"""Stored nowhere: readers that ask for positions get it beside the offset."""
REASON = "_reason"
"""Stored nowhere: readers of the side log get it, the reason why a tuple is there."""
