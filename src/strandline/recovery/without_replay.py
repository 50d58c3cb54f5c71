"""Recovery under a policy that does not replay: state with a gap, and exactly which.

The operator starts from its last whole checkpoint, or from nothing, and goes on where it stood. What it took in between
is in the results that were published, and in no window that is still open. Nothing has to be guessed of it: the
standing says from where to where the gap reaches, and the output since the checkpoint says which windows have closed.
Those are dropped, so no window has two results. If a block with results cannot be read, and tuples close windows, any
window that was saved before it may have closed: all of these are dropped. Windows whose time has passed, as far as the
state with the gap knows (a session whose later tuples are lost), close and are set aside as incomplete: the boundary of
the results has passed them, and they are no results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from strandline.clock import stopwatch_s
from strandline.errors import CorruptBlockError, CorruptionError, KeyMissingError, TruncatedError
from strandline.failpoint import failpoint
from strandline.log.operator_state.loss import Loss
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.kinds import is_closed, is_footprint
from strandline.log.stream.log import Log
from strandline.log.stream.reason import INCOMPLETE
from strandline.operators.kernels.kernel_cache import TALLY
from strandline.operators.operator import TAKEN_IN, Definition, OnError, Operator, Saved
from strandline.recovery.eventual_checkpoint import load_into, part_of, require_taken_in
from strandline.recovery.recover import Recovery, Stand


def recover_without_replay(
    output: Log, definition: Definition, stand: Stand, on_error: OnError = "stop"
) -> tuple[Operator, Recovery]:
    """Returns the operator with a gap where it is unknown what it took in, and the gap. Reads no input."""
    standing = stand.standing
    began_s, kernels_s = stopwatch_s(), TALLY.seconds
    salvage = _Salvage(output, definition, stand)
    operator = definition.fresh("set_aside")
    if standing.is_whole and standing.saved:
        operator = salvage.loaded(operator)
    failpoint("during-recovery")
    operator.input_end = standing.input
    begin = stand.beginning(output.spec.begins).input
    first = standing.oldest if standing.is_whole else last_empty(standing, begin)
    has_gap = bool(salvage.missing) or (standing.input > first if standing.is_whole else standing.open > 0)
    incomplete = _pass_time(operator, stand, has_gap=has_gap)
    aside = dict(operator.aside.tables)
    if incomplete is not None:
        aside[INCOMPLETE] = [incomplete]
    operator.on_error = on_error
    done = Recovery(
        operator.open_windows,
        standing.extent if standing.is_whole else 0,
        0,
        0,
        max(0.0, stopwatch_s() - began_s - (TALLY.seconds - kernels_s)),
        0.0,
        kernels_s=TALLY.seconds - kernels_s,
        losses=tuple(_losses(output, stand, first, salvage, operator, incomplete)) if has_gap else (),
        aside=aside,
    )
    return operator, done


def last_empty(standing: Standing, begin: int) -> int:
    """Returns an input offset at which no window was open: where a failure took them all, or the beginning."""
    last = standing.recovered
    return int(last["at_input"]) if last is not None and not last["extent"] and not last["replayed"] else begin


def _pass_time(operator: Operator, stand: Stand, *, has_gap: bool) -> pa.Table | None:
    """Brings the operator to the time up to which windows were closed; returns windows that only now close.

    Without a gap all of that was published. And so it was where windows are got back by a replay: what is kept there
    is single tuples, each due at its own time, whatever came since.
    """
    definition = operator.definition
    boundary = stand.boundary
    if boundary is None or not definition.has_times:
        return None
    columns = operator.advance(boundary)
    if columns is None or not has_gap or definition.replays_windows or not len(columns[0]):
        return None
    return pa.table(columns, names=[name for name, _ in definition.result_columns])


def _losses(
    output: Log, stand: Stand, first: int, salvage: _Salvage, operator: Operator, incomplete: pa.Table | None
) -> Iterator[Loss]:
    standing = stand.standing
    gone = max(0, standing.open - operator.open_windows)
    commit, rotten = output.state.seq, min(salvage.missing, gone)
    if salvage.missing:
        yield Loss(stand.partition, standing.input, standing.input, rotten, 0, 0, commit, "footprints rotten")
    if standing.input == first:
        return
    times = (standing.replays_from.bound, standing.stands.bound) if standing.is_whole else (None, None)
    yield Loss(
        stand.partition,
        first,
        standing.input,
        max(0, gone - rotten),
        0 if incomplete is None else incomplete.num_rows,
        0,
        commit,
        "skipped" if standing.is_whole else "nothing saved",
        *times,
    )


@dataclass
class _Salvage:
    """The last whole checkpoint, as far as it can be read, and what became of its windows since."""

    output: Log
    definition: Definition
    stand: Stand
    missing: int = field(default=0, init=False)
    """Windows of the checkpoint whose footprints cannot be read."""
    _rows: int = field(default=0, init=False)
    _is_torn: bool = field(default=False, init=False)

    def loaded(self, operator: Operator) -> Operator:
        """Returns the operator with the windows that are left; a fresh one if it cannot use a part of them."""
        saved = self.stand.standing.saved
        try:
            load_into(operator, self.output, self.stand.partition, self._newest_first())
        except (CorruptionError, TruncatedError):
            self.missing = saved
            return self.definition.fresh("set_aside")
        if self._is_torn:
            self.missing = max(0, saved - self._rows)
        return operator

    def _newest_first(self) -> Iterator[Saved]:
        standing, partition, end = self.stand.standing, self.stand.partition, self.stand.end
        first, columns = end - standing.extent, list(self.definition.loads)
        self.output.require_kept(partition, first)
        for block in reversed(list(self.output.blocks(partition, first, end))):
            try:
                table = part_of(self.output, block, (first, end), columns)
            except (CorruptBlockError, KeyMissingError):
                self._is_torn = True
                if self.definition.closes_early and any(block.rows.get(kind) for kind in ("result", "closed")):
                    return  # any window that was saved before may have closed here
                continue
            closed = is_closed(table)
            footprints = table.filter(is_footprint(table))
            require_taken_in(footprints, standing)
            footprints = footprints.filter(pc.equal(footprints.column(TAKEN_IN), standing.oldest))
            self._rows += footprints.num_rows
            yield Saved(table.filter(closed), footprints)
