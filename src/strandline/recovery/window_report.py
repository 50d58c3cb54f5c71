"""The windows that an operator has open: as its footprints have them, or as they are, which takes a recovery."""

from __future__ import annotations

import pyarrow as pa

from strandline.errors import OptionError, StreamMismatchError, TruncatedError
from strandline.log.log import Log
from strandline.log.standing import Standing
from strandline.operators.operator import Definition, Operator
from strandline.recovery import eventual_checkpoint
from strandline.recovery.recover import Stand, recover, repeat
from strandline.recovery.stream_definition import definition_of


def saved_windows(log: Log) -> pa.Table:
    """The checkpoint that a recovery begins with: each window as its newest footprint has it."""
    definition, ends = definition_of(log.spec, log.storage.url), log.state.ends
    standings = enumerate(log.state.standings)
    return _table(log, definition, [eventual_checkpoint.load(log, definition, p, s, ends[p]) for p, s in standings])


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
    definition = definition_of(log.spec, log.storage.url, input_.spec)
    operators = []
    for p, standing in enumerate(log.state.standings):
        if standing.lets_go:
            operator = _repeated(log, input_, definition, p, standing)
        else:
            operator, _ = recover(log, input_, definition, Stand.of(log, p))
        operators.append(operator)
    return _table(log, definition, operators, now=True)


def _repeated(log: Log, input_: Log, definition: Definition, partition: int, standing: Standing) -> Operator:
    """Without a checkpoint: everything since the operator last had no window open, taken in again."""
    empty, first = _last_empty(standing), input_.state.starts[partition]
    if first > empty:
        raise TruncatedError(
            f"the operator keeps no checkpoints, and its input begins at offset {first}: what was open before is gone",
            where=f"{input_.storage.url}, partition {partition}",
            todo="run the operator with sl.cec(): its next batch saves every open window",
        )
    operator = definition.fresh("set_aside")
    operator.input_end = empty
    operator.begin()
    repeat(operator, input_, partition, standing.input, log.state.boundaries[partition])
    if operator.open_windows != standing.open:
        raise OptionError(
            f"the operator keeps no checkpoints, and has lost windows in a failure: it has {standing.open} open, the "
            f"input from offset {empty} on makes {operator.open_windows}",
            where=f"{log.storage.url}, partition {partition}",
            todo="run the operator with sl.cec(): its next batch saves every window that it has",
        )
    return operator


def _last_empty(standing: Standing) -> int:
    """An offset of the input at which no window was open: where a failure took them all, or the beginning."""
    last = standing.recovered
    return int(last["at_input"]) if last is not None and not last["extent"] and not last["replayed"] else 0


def _table(log: Log, definition: Definition, operators: list[Operator], *, now: bool = False) -> pa.Table:
    """The open windows in the columns of footprints; with `now`, as they are and not as their footprints have them."""
    columns = [c for c, _ in [*definition.result_columns, *definition.control_columns]]
    shown = [c for c in columns if c not in definition.hidden]
    schema = pa.schema([*(log.spec.block.field(name) for name in shown), pa.field("_partition", pa.int32())])
    tables = [schema.empty_table()]
    for partition, operator in enumerate(operators):
        found = pa.table(operator.windows(now=now), names=columns).select(shown)
        where = pa.repeat(pa.scalar(partition, pa.int32()), len(found))
        tables.append(pa.Table.from_arrays([*found.columns, where], schema.names))
    return pa.concat_tables(tables)
