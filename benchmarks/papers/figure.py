"""A figure of a paper: what is measured, how it is drawn, and what the paper claims of it.

An *experiment* measures; one experiment may serve several figures. A figure draws what its experiment has found, with
the paper's values in grey beside ours, and checks the paper's claims by named predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

Data = Mapping[str, Any]
"""What an experiment has found: values that JSON can hold."""
Line = Sequence[tuple[float, float]]
Size = Literal["tiny", "small", "full"]


class Verdict(StrEnum):
    """How a figure of ours compares with the paper's."""

    AGREES = "agrees"
    """All claims hold."""
    BETTER = "better"
    """Claims that do not hold are surpassed, the others hold."""
    DIFFERS = "differs"
    """A claim does not hold; the page says why."""
    FAILED = "failed"
    """The experiment ended with an error."""


@dataclass(frozen=True)
class Claim:
    """One thing that the paper says about its figure, as a predicate over what we measure."""

    text: str
    holds: Callable[[Data], bool]
    refuted_by: Data
    """Values of which it does not hold: a test checks that the claim can fail."""
    shown_by: Data
    """Values of which it holds: the paper's own where it gives them."""
    surpassed: Callable[[Data], bool] | None = None
    """Says of values for which it does not hold that they are better than what the paper claims."""
    why_not: str = ""
    """Why ours differ, if they do."""

    def verdict(self, data: Data) -> Verdict:
        """Returns how the values compare with this claim."""
        if self.holds(data):
            return Verdict.AGREES
        if self.surpassed is not None and self.surpassed(data):
            return Verdict.BETTER
        return Verdict.DIFFERS


@dataclass(frozen=True)
class Panel:
    """One set of axes. Lines connect numbers; bars stand over names, in groups."""

    title: str
    x: str
    y: str
    ours: Mapping[str, Line] = field(default_factory=dict)
    """Lines by their names."""
    paper: Mapping[str, Line] = field(default_factory=dict)
    bars: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """In the place of lines: values by the names below the axis, by the names of groups of bars."""
    paper_bars: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    own_axis: bool = False
    """True: the paper's values have an axis of their own, on the right, because theirs are of another magnitude."""
    log_x: bool = False
    log_y: bool = False
    limit: tuple[str, float] | None = None
    """A line across, with its name."""


@dataclass(frozen=True)
class Figure:
    """A figure or table of a paper."""

    name: str
    """For the command line and files: cec-fig6."""
    title: str
    setting: str
    """What the paper ran."""
    found: str
    """What the paper found."""
    ours: str
    """What we run, and how that differs from the paper's setting."""
    panels: Callable[[Data], Sequence[Panel]]
    claims: Sequence[Claim]
    table: Callable[[Data], Sequence[Sequence[str]]] | None = None
    """Rows of a table for the page, the first one its heading."""

    def verdict(self, data: Data) -> Verdict:
        """Returns how the values compare with the paper's claims: the worst of them counts."""
        found = {claim.verdict(data) for claim in self.claims}
        return next((v for v in (Verdict.DIFFERS, Verdict.BETTER) if v in found), Verdict.AGREES)


@dataclass(frozen=True)
class Experiment:
    """A measurement that one or several figures show."""

    name: str
    paper: str
    """The name of the paper in `catalogue.PAPERS`."""
    measure: Callable[[Size, Path], Data]
    """Measures in an empty folder. `tiny` is for tests: seconds, whatever it finds."""
    figures: Sequence[Figure]
