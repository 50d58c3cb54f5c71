"""Where an operator stands in several inputs that are serialised into one: part of its standing.

Tuples of a serialised input are counted, and known by their times. So a place in it is a number of tuples and a time
before which all are among them; offsets of the inputs only say what they have to keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strandline.log.stream.json_part import JsonPart


@dataclass(frozen=True, slots=True)
class Position(JsonPart):
    """A place in a serialised input at which a step may end and a reader may begin."""

    ordinal: int
    """m: so many tuples come before it."""
    bound: int | None
    """b: they are all tuples with a time before this one; None before the first tuple."""


@dataclass(frozen=True, slots=True)
class ReplicaMark(JsonPart):
    """Of an input that is several replicas: which of them the offsets are of, and what they are in any other."""

    stream: str
    """The id of its stream."""
    first: int
    """So many results come before `InputMark.first`."""
    oldest: int
    """So many come before `InputMark.oldest`."""


@dataclass(frozen=True, slots=True)
class InputMark(JsonPart):
    """One of the inputs, in one partition."""

    ONLY_IF_SAID = "replica"
    PARTS: ClassVar = {"replica": ReplicaMark}

    first: int
    """No tuple before this offset is still to be taken in."""
    oldest: int
    """No tuple before this offset is needed in a replay: what a registered consumer asks for."""
    seen: int = -1
    """The last append of which anything was known when the bound was chosen."""
    seen_checksum: str = ""
    """Its checksum: should the input be put back and go on otherwise, it will be another one."""
    replica: ReplicaMark | None = None
    """None for an input that is one stream."""


@dataclass(frozen=True, slots=True)
class Marks(JsonPart):
    """All inputs, in one partition."""

    PARTS: ClassVar = {"stands": Position, "oldest": Position, "inputs": InputMark}

    stands: Position
    """(m, b): what is in the results and the state."""
    oldest: Position
    """(m, b) from which a replay reads: at T, or somewhat before it."""
    inputs: tuple[InputMark, ...]
