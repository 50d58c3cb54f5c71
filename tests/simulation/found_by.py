"""Of each planted defect a seed that finds it: it is tried first, so that the tests need not search every time.

Where a seed does not find its defect any more, because code or a simulation has changed, the test searches on, and a
warning says which seed to note here.
"""

FOUND_BY: dict[str, int] = {}
