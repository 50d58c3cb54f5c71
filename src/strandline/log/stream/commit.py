"""A commit of a stream: the fields that all kinds have in common, and the methods in which they differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from strandline.log.stream.block import Block
from strandline.log.stream.json_part import JsonPart
from strandline.log.stream.manifest import FORMAT

if TYPE_CHECKING:
    from strandline.log.stream.log_state import LogState


@dataclass(frozen=True, slots=True)
class Commit(JsonPart):
    """One commit; the state of a stream is the fold of its commits. In JSON it is what only its kind has."""

    kind: ClassVar[str]
    """As its manifest names it."""
    ELSEWHERE = "seq stream published_us before checksum"

    seq: int
    stream: str
    published_us: int
    before: str = field(default="", kw_only=True)
    """The checksum of the commit before this one; empty if its writer did not know it, as in old streams."""
    checksum: str = field(default="", compare=False, kw_only=True)
    """The checksum of its file, once it is written."""

    @property
    def format(self) -> int:
        """The version of its file: the least whose readers understand it."""
        return FORMAT

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks that it names, by partition and offset."""
        return ()

    @property
    def named(self) -> set[str]:
        """The keys of the files that it names: none of them may be announced for deletion."""
        return {block.file for block in self.blocks}

    def problem(self, state: LogState) -> str | None:
        """Returns why this commit cannot follow `state`, for a reason of its own kind; None if it can."""
        return None

    def changes(self, state: LogState) -> dict[str, Any]:
        """Returns the fields of the state that this commit changes, with their new values."""
        return {}
