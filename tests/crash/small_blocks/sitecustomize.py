"""Python loads this at the start of every process that has this folder on its path: blocks are full after a few rows.

So a step writes several blocks, and a worker can die between two of them.
"""

from strandline.log.stream import block_sequence

block_sequence.ROWS_MAX = 20
