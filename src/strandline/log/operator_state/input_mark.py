"""Where an operator stands in several inputs that are serialised into one: part of its standing.

Tuples of a serialised input are counted, and known by their times. So a place in it is a number of tuples and a time
before which all are among them; offsets of the inputs only say what they have to keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a serialised input at which a step may end and a reader may begin."""

    ordinal: int
    """m: so many tuples come before it."""
    bound: int | None
    """b: they are all tuples with a time before this one; None before the first tuple."""


@dataclass(frozen=True, slots=True)
class ReplicaMark:
    """Of an input that is several replicas: which of them the offsets are of, and what they are in any other."""

    stream: str
    """The id of its stream."""
    first: int
    """So many results come before `InputMark.first`."""
    oldest: int
    """So many come before `InputMark.oldest`."""


@dataclass(frozen=True, slots=True)
class InputMark:
    """One of the inputs, in one partition."""

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

    def to_json(self) -> dict[str, Any]:
        """Returns the values as a standing holds them."""
        body = asdict(self)
        if self.replica is None:
            del body["replica"]
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> InputMark:
        """Returns the object that `to_json` wrote."""
        replica = ReplicaMark(**body["replica"]) if "replica" in body else None
        return cls(**{**body, "replica": replica})


@dataclass(frozen=True, slots=True)
class Marks:
    """All inputs, in one partition."""

    stands: Position
    """(m, b): what is in the results and the state."""
    oldest: Position
    """(m, b) from which a replay reads: at T, or somewhat before it."""
    inputs: tuple[InputMark, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns the values as a standing holds them."""
        inputs = [mark.to_json() for mark in self.inputs]
        return {"stands": asdict(self.stands), "oldest": asdict(self.oldest), "inputs": inputs}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Marks:
        """Returns the object that `to_json` wrote."""
        inputs = tuple(map(InputMark.from_json, body["inputs"]))
        return cls(Position(**body["stands"]), Position(**body["oldest"]), inputs)
