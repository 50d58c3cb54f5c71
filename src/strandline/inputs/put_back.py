"""Checks that an input is still the one that an operator has taken in, and was not put back."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.errors import DroppedError, InputWentBackError, KeyMissingError
from strandline.log.stream.log import Log


def require_not_put_back(log: Log, commit: int, offsets: Sequence[int], seen: int, checksum: str) -> None:
    """Raises `InputWentBackError` if the input ends before this commit, or a partition before its offset.

    Raises it, too, if the commit `seen` has another checksum; an operator of an early version has seen none (-1).
    """
    for partition, offset in enumerate(offsets):
        end = log.state.ends[partition]
        if commit > log.state.seq or offset > end:
            raise _went_back(log, f"it ends at commit {log.state.seq}, and in partition {partition} at offset {end}")
    if seen < 0:
        return
    try:
        found = log.commit(seen)
    except (DroppedError, KeyMissingError):
        return  # so old that it is no longer kept: the process that drops commits has seen all that follow
    if found.checksum != checksum:
        raise _went_back(log, f"its commit {seen} is not the one that the operator has read")


def _went_back(log: Log, how: str) -> InputWentBackError:
    return InputWentBackError(
        f"the input has lost tuples that the operator has taken in: {how}",
        stream=log.storage.url,
        todo="restore a newer copy of the input; if there is none, start the operator with a new output stream: its "
        "results of the lost tuples are published and cannot be taken back",
    )
