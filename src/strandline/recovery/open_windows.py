"""The windows that an operator has open: as its footprints have them, or as they are, which takes a recovery."""

from __future__ import annotations

import pyarrow as pa

from strandline.errors import OptionError, StreamMismatchError, TruncatedError
from strandline.log.log import Log
from strandline.log.standing import Standing
from strandline.operators.operator import Operator
from strandline.operators.plan import Plan
from strandline.operators.record import OPENED, USED, T
from strandline.operators.tuples import NO_BATCH, Columns
from strandline.operators.window_state import WindowState
from strandline.recovery import eventual_checkpoint
from strandline.recovery.recover import recover, repeat
from strandline.recovery.stream_plan import plan_of


def saved_windows(log: Log) -> pa.Table:
    """The checkpoint that a recovery begins with: each window as its newest footprint has it."""
    plan, ends = plan_of(log.spec, log.storage.url), log.state.ends
    standings = enumerate(log.state.standings)
    return _table(log, plan, [eventual_checkpoint.load(log, plan, p, s, ends[p]) for p, s in standings])


def current_windows(log: Log, input_: Log) -> pa.Table:
    """Every window that is open, with all that the operator has taken in; nothing is written.

    Raises `StreamMismatchError` if this is not the operator's input, `TruncatedError` if the input does not hold what
    has to be replayed any more, `OptionError` if an operator without checkpoints has lost windows in a failure.
    """
    upstream = log.spec.upstream or {}
    if input_.spec.id != upstream.get("stream"):
        raise StreamMismatchError(
            f"the stream has another id ({input_.spec.id}) than the operator's input ({upstream.get('stream')})",
            where=input_.storage.url,
            todo="put the input back where the operator has read it, or ask for open_windows() as they were saved",
        )
    plan = plan_of(log.spec, log.storage.url, input_.spec)
    states = []
    for p, standing in enumerate(log.state.standings):
        boundary = log.state.boundaries[p]
        if standing.mode == "none":
            operator = _repeated(log, input_, plan, p, standing)
        else:
            operator, _ = recover(log, input_, plan, p, standing, log.state.ends[p], boundary)
        records = operator.state.arrays.records[: operator.state.arrays.header[USED]]
        records[records[:, OPENED] >= 0, T] = standing.input
        states.append(operator.state)
    return _table(log, plan, states)


def _repeated(log: Log, input_: Log, plan: Plan, partition: int, standing: Standing) -> Operator:
    """Without a checkpoint: everything since the operator last had no window open, taken in again."""
    empty, first = _last_empty(standing), input_.state.starts[partition]
    if first > empty:
        raise TruncatedError(
            f"the operator keeps no checkpoints, and its input begins at offset {first}: what was open before is gone",
            where=f"{input_.storage.url}, partition {partition}",
            todo="run the operator with sl.cec(): its next batch saves every open window",
        )
    operator = Operator.new(plan, "set_aside")
    operator.input_end = empty
    operator.begin()
    repeat(operator, input_, partition, standing.input, log.state.boundaries[partition])
    if operator.state.open_windows != standing.open:
        raise OptionError(
            f"the operator keeps no checkpoints, and has lost windows in a failure: it has {standing.open} open, the "
            f"input from offset {empty} on makes {operator.state.open_windows}",
            where=f"{log.storage.url}, partition {partition}",
            todo="run the operator with sl.cec(): its next batch saves every window that it has",
        )
    return operator


def _last_empty(standing: Standing) -> int:
    """An offset of the input at which no window was open: where a failure took them all, or the beginning."""
    last = standing.recovered
    return int(last["at_input"]) if last is not None and not last["extent"] and not last["replayed"] else 0


def _table(log: Log, plan: Plan, states: list[WindowState]) -> pa.Table:
    columns = [c for c, _ in [*plan.result_columns, *plan.control_columns]]
    results = {c for a in plan.accumulators for c, _ in a.results}  # of windows that are open there are none
    kept = [log.spec.block.field(name) for name in columns if name not in results]
    schema = pa.schema([*kept, pa.field("_partition", pa.int32())])
    tables = [schema.empty_table()]
    for partition, state in enumerate(states):
        records = state.arrays.records[: state.arrays.header[USED]]
        records = records[records[:, OPENED] >= 0]
        arrays = Columns(plan, records, state.arrays, NO_BATCH).footprints(state.open_windows)
        shown = [array for name, array in zip(columns, arrays, strict=True) if name not in results]
        where = pa.repeat(pa.scalar(partition, pa.int32()), len(records))
        tables.append(pa.Table.from_arrays([*shown, where], schema.names))
    return pa.concat_tables(tables)
