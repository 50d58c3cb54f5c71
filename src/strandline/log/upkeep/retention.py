"""Dropping the past: `truncate` takes tuples out of the stream, `collect` takes files off the disk.

Deleting is done in two steps, so that no reader is hurt: a `collect` commit announces the files that nothing refers to;
`grace` later, when the readers that may still hold them are done, they are deleted. A slow writer whose block was
announced cannot publish it any more, because it has to read the announcement first; no clock is part of that argument.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from strandline.errors import ConsumerError, OptionError
from strandline.log.index.index import ROOT_KEY
from strandline.log.operator_state.guesses import guesses_of
from strandline.log.stream import milestone
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import CollectCommit, MilestoneCommit, TruncateCommit, announced
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.stream.reason import AHEAD, TIME
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.grace import GRACE_US
from strandline.log.upkeep.unreferenced import IsLive, always, is_live_in, partition_of, unreferenced
from strandline.units import CONSUMED, Retention, earlier

_FILES_PER_COMMIT = 10_000
_BLOCK_NAME = re.compile(r"(?P<first>\d{20})-(?:(?P<end>\d{20})-)?")

Progress = Callable[[str, int], None]


class Past(TypedDict, total=False):
    """The part of a stream that is to be dropped: one of the first three."""

    before_time: int | Mapping[int, int] | None
    """All that is older, or a time for each partition."""
    before_offset: int | Mapping[int, int] | None
    """All that lies before, or an offset for each partition."""
    consumed: bool
    """All that every registered consumer has passed."""
    published_before_us: int | None
    """Beside a time: the side log of wrong times goes if it was published before this; else see `first_kept`."""


def truncate(log: Log, *, yield_to_consumers: bool = False, **past: Unpack[Past]) -> tuple[int, ...]:
    """Drops whole blocks that lie in the past; returns where each partition begins now.

    Blocks are dropped only if all of their results lie before: footprints have no time of their own. If a registered
    consumer needs some of them this raises and names it, or, with `yield_to_consumers`, drops only what no consumer
    needs.
    """
    log.refresh()

    def make(state: LogState, _seen: Sequence[Commit]) -> TruncateCommit:
        plan = planned(log, **past)
        if plan.refusal is not None and not yield_to_consumers:
            raise plan.refusal
        return TruncateCommit(*log.stamp(state), starts=plan.free if yield_to_consumers else plan.starts)

    if make(log.state, ()).starts != log.state.starts:
        log.publish(make, since=log.state.seq)
    return log.state.starts


@dataclass(frozen=True, slots=True)
class Truncation:
    """The effect that a truncation would have, as of the last refresh."""

    starts: tuple[int, ...]
    """Where each partition would begin; the late side log comes last."""
    free: tuple[int, ...]
    """The same if only what no consumer needs is dropped."""
    refusal: ConsumerError | None
    """Raised if a consumer needs some of what is to go; None if none does."""


def planned(log: Log, **past: Unpack[Past]) -> Truncation:
    """Returns what `truncate` would do; changes nothing."""
    given = [past.get("before_time") is not None, past.get("before_offset") is not None, past.get("consumed")]
    if sum(map(bool, given)) != 1:
        raise OptionError(
            "truncate needs a time or an offset, and not both", stream=log.storage.url, todo="pass one of them"
        )
    state, offsets = log.state, _passed(log) if past.get("consumed") else _wanted(log, past)
    wanted = [_block_start(log, p, offset) for p, offset in enumerate(offsets)]
    for p, standing in enumerate(state.standings):
        # What the operator would read to get its own windows back stays, whatever anybody asked for.
        wanted[p] = min(wanted[p], _block_start(log, p, state.ends[p] - standing.extent))
        if past.get("consumed") and (guesses := guesses_of(log, p)) is not None:
            # Consumers say how far they are with results. Another driver of theirs reads all guesses again.
            wanted[p] = min(wanted[p], _block_start(log, p, guesses.first))
    starts = [max(old, new) for old, new in zip(state.starts, wanted, strict=True)]
    free = list(starts)
    refusal = None
    for consumer in consumer_registry.consumers(log):
        for p, need in enumerate(consumer.needs):
            if need >= starts[p] or starts[p] == state.starts[p]:
                continue
            refusal = refusal or _refusal(log, consumer, p, need, starts[p])
            if need < free[p]:
                free[p] = max(state.starts[p], _block_start(log, p, need))
    return Truncation(tuple(starts), tuple(free), refusal)


def _refusal(log: Log, consumer: consumer_registry.Consumer, partition: int, need: int, start: int) -> ConsumerError:
    return ConsumerError(
        f"{consumer.text} still needs partition {partition} from offset {need:,}; "
        f"truncating would drop up to offset {start - 1:,}",
        stream=log.storage.url,
        todo=f"truncate less, let {consumer.title!r} catch up, or unregister it: "
        f"`strandline consumers {log.storage.url} --forget {consumer.title}`",
    )


def _passed(log: Log) -> list[int]:
    """Returns per partition the first offset that a registered consumer needs; the present starts if there is none.

    No consumer acknowledges the side log, so all of it stays.
    """
    starts, needs = list(log.state.starts), [c.needs for c in consumer_registry.consumers(log)]
    if needs:
        starts[: log.spec.partitions] = [min(own) for own in zip(*needs, strict=True)]
    return starts


def apply_retention(log: Log, keep: Retention) -> None:
    """Drops what is more than `keep` older than the newest tuple, as far as consumers allow.

    In an operator's stream the newest result counts, of each partition by itself if times are offsets. If `keep` is
    "consumed", it drops what all registered consumers have passed, and nothing while none is registered.
    """
    if keep == CONSUMED:
        truncate(log, consumed=True, yield_to_consumers=True)
        return
    # Times of numbers have no clock.
    published = earlier(log.clock.now_us(), keep) if log.spec.time_is_timestamp else None

    def drop(before_time: int | Mapping[int, int]) -> None:
        truncate(log, before_time=before_time, published_before_us=published, yield_to_consumers=True)

    if log.spec.operator is None:
        if log.state.time_max is not None:
            drop(earlier(log.state.time_max, keep))
        return
    found = {p: _newest_result(log, p) for p in range(log.spec.partitions)}
    newest = {p: time for p, time in found.items() if time is not None}
    if log.spec.time_is_offset:
        drop({p: earlier(time, keep) for p, time in newest.items()})
    elif newest:
        drop(earlier(max(newest.values()), keep))


def _newest_result(log: Log, partition: int) -> int | None:
    """Returns the largest time of a result; None if there is none.

    Looked for from the end backwards, in ever larger steps. In streams of before, blocks have the times of footprints,
    too: those of windows that are still open lie behind the boundary, before which all results are.
    """
    start, end = log.state.starts[partition], log.state.ends[partition]
    boundary = log.state.boundaries[partition]
    reach = 1
    while start < end:
        first = max(start, end - reach)
        times = [b.time_max for b in log.blocks(partition, first) if b.has_results]
        if times:
            return max(times) if boundary is None else min(max(times), boundary)
        if first == start:
            break
        reach *= 16
    return None


def _wanted(log: Log, past: Past) -> list[int]:
    """Returns, per partition, the first offset to keep, not yet aligned to blocks."""
    late, before_time, before_offset = log.spec.late, past.get("before_time"), past.get("before_offset")
    if before_time is not None:
        times = before_time if isinstance(before_time, Mapping) else dict.fromkeys(range(late + 1), before_time)
        starts = list(log.state.starts)
        for p, time in times.items():
            starts[p] = first_kept(log, p, time, past.get("published_before_us"))
        return starts
    if isinstance(before_offset, Mapping):
        unknown = [p for p in before_offset if not 0 <= p < late]
        if unknown:
            raise OptionError(
                f"there is no partition {unknown[0]}", where=f"{log.storage.url}, partitions 0 to {late - 1}"
            )
        wanted = [before_offset.get(p, 0) for p in range(late)]
    else:
        wanted = [before_offset or 0] * late
    return [*wanted, 0]


def first_kept(log: Log, partition: int, before_time: int, published_before_us: int | None = None) -> int:
    """Returns the first offset of the first block with results that are not all older than a time.

    Of a block that is in the side log for its times only its publication counts: whether that lies before the same
    time, or, if times are numbers, before that of everything that is kept in the partitions.
    """
    end = log.state.ends[partition]
    if partition != log.spec.late:
        blocks = log.blocks(partition, time_from=before_time)
        return next((b.first for b in blocks if b.has_results and b.time_max >= before_time), end)
    for block in log.blocks(partition):
        if block.reason not in (AHEAD, TIME):
            is_kept = block.has_results and block.time_max >= before_time
        else:
            if published_before_us is None:
                published_before_us = before_time if log.spec.time_is_timestamp else _oldest_kept_us(log, before_time)
            is_kept = block.published_us >= published_before_us
        if is_kept:
            return block.first
    return end


def _oldest_kept_us(log: Log, before_time: int) -> int:
    """Returns when the oldest block was published that a truncation leaves; the smallest time if it drops none."""
    oldest_us = log.state.published_us
    for p in range(log.spec.partitions):
        first = first_kept(log, p, before_time)
        if first == 0 and log.state.ends[p]:
            return -(1 << 63)
        oldest_us = min([oldest_us, *(b.published_us for b in itertools.islice(log.blocks(p, first), 1))])
    return oldest_us


def _block_start(log: Log, partition: int, offset: int) -> int:
    """Returns the start of the block that holds the offset: blocks are dropped whole or not at all."""
    start, end = log.state.starts[partition], log.state.ends[partition]
    if offset >= end:
        return end
    return next((b.first for b in log.blocks(partition, first=max(offset, start))), start)


def collect(log: Log, *, grace_us: int = GRACE_US, commits: bool = True, progress: Progress | None = None) -> list[str]:
    """Deletes files that nothing refers to: of crashed attempts, of compacted and of truncated blocks, of old indexes.

    Safe while writers and readers run. Blocks that no commit can name any more, those that were compacted or truncated
    above all, are announced at once, other files when they have been untouched for `grace_us`. Both are deleted
    `grace_us` after that, so the first call may delete nothing. The folder of commits, which may hold many files and
    hardly any garbage, and the stream's own are looked at only with `commits`.
    """
    log.reload()  # an older snapshot's index would take the newer one's files for unreferenced
    base_seq = log.state.seq
    known = announced(log.commits.some(log.state.announced))
    cutoff_us = log.clock.now_us() - grace_us
    fresh: list[str] = []
    referred = _Referred(log)
    for listed in unreferenced(log.storage, referred.is_live_in, commits=commits):
        is_due = listed.modified_us <= cutoff_us or not referred.can_be_published(listed.key)
        if is_due and listed.key not in known:
            fresh.append(listed.key)
        if len(fresh) == _FILES_PER_COMMIT:
            _announce(log, fresh, base_seq)
            fresh = []
    if fresh:
        _announce(log, fresh, base_seq)
    return _delete_announced(log, log.clock.now_us() - grace_us, progress)


def _delete_announced(log: Log, cutoff_us: int, progress: Progress | None) -> list[str]:
    log.reload()
    # Files of the index are named by what is in them, so an announced one may have come back. (Blocks may not.)
    revived = log.index_files()
    deleted: list[str] = []
    done = -1
    for announcement in log.commits.some(log.state.announced):
        if announcement.published_us > cutoff_us:
            break
        for file in sorted(announced([announcement])):
            if file in revived:
                continue
            log.storage.delete(file)
            deleted.append(file)
            if progress:
                progress("deleted", len(deleted))
        done = announcement.seq
    if done >= 0:
        _announce(log, [], log.state.seq, deleted_through=done)
    return deleted


class _Referred:
    """The files that a log refers to, one folder after the other."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._partition: int | None = None
        self._blocks: list[Block] = []

    def is_live_in(self, folder: str) -> IsLive:
        """Goes to the next folder; returns a function that says whether a file in it is of use."""
        log = self._log
        self._partition = partition_of(folder, log.spec)
        self._blocks = [] if self._partition is None else list(log.blocks(self._partition))
        if folder == "commits":
            return always
        return is_live_in(folder, log, log.state.standings, lambda _: self._blocks, self._index_files)

    def _index_files(self) -> set[str]:
        # The index may rest on files of the milestone that it was rebuilt from. Who has lost it begins with the newest
        # one that has a mark, which may be the one before.
        commits, of_index = self._log.commits, self._log.index_files()
        return {ROOT_KEY, *of_index, *commits.files(self._log.state.milestone), *commits.marked_files()}

    def can_be_published(self, key: str) -> bool:
        """Returns whether a commit may yet name this file of the folder, of which nothing has published it so far.

        The name of a block begins with its first offset, that of a compacted one goes on with its end. An append has
        to begin at the end of the partition. A compaction has to take the place of two live blocks or more, and is
        given up if another one was published before it.
        """
        found = _BLOCK_NAME.match(key.rpartition("/")[2])
        if self._partition is None or found is None:
            return True
        state, first = self._log.state, int(found["first"])
        if first < state.starts[self._partition]:
            return False
        if found["end"] is None:
            return first >= state.ends[self._partition]
        at = bisect.bisect_right(self._blocks, first, key=lambda b: b.first) - 1
        return at < 0 or int(found["end"]) > self._blocks[at].end


def _announce(log: Log, files: Sequence[str], base_seq: int, deleted_through: int = -1) -> None:
    """Publishes a collect commit; nothing before `base_seq` names any of the files."""
    doomed = set(files)

    def make(state: LogState, seen: Sequence[Commit]) -> CollectCommit:
        # Whatever was published since we looked is referenced now.
        named = {file for m in seen for file in m.named}
        if any(isinstance(m, MilestoneCommit) for m in seen):
            named |= {file for file in doomed if file.startswith(f"{milestone.FOLDER}/")}
        return CollectCommit(*log.stamp(state), tuple(sorted(doomed - named)), deleted_through)

    log.publish(make, since=base_seq)
