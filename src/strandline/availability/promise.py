"""What an operator promises when inputs are missing: how long tuples wait for them, and what happens then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["process", "delay", "suspend"]
"""What a fork does with new tuples: takes them in at once, as late as the bound allows, or not at all."""

Reconcile = Literal["redo", "undo"]
"""How the stable lineage gets its state: it has kept it beside the fork's, or it is rebuilt from the log."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The bound, and what is done when it has passed."""

    bound_us: int
    failing: Mode = "process"
    """While inputs are missing. `suspend`: there is no fork, and no tentative result ever."""
    stabilizing: Mode = "process"
    """While the stable lineage catches up."""
    reconcile: Reconcile = "redo"
    """`undo`: a fork that begins takes the state over, instead of a copy of what it changes."""
