"""The grace: how long a file that nothing refers to stays before it is deleted, unless a call names another time.

Readers that planned before a compaction still use such files. A longer grace costs files: a writer deletes a block one
grace, and up to 1,024 commits, after it was compacted. At five batches a second that is 55,000 files a partition. With
a day it would be 433,000, and all of them are listed every 1,024 commits.
"""

from __future__ import annotations

GRACE = "3 hours"
GRACE_US = 3 * 3_600_000_000
"""The same as a number. It is not computed: `strandline --help` would load NumPy for it."""
