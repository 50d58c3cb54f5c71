"""The numbers that a keyed function returns: how many results to emit, and whether the key is closed."""

from __future__ import annotations

from typing import Final

EMIT: Final = 1
"""A result is what `out` has now; 2 * EMIT: `out[0]` and `out[1]`."""
CLOSE: Final = 1 << 16
"""The state of the key is forgotten; the next tuple of the key begins a new one."""
EMIT_MAX: Final = 1024
"""Results of one call at most."""
