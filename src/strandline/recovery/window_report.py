"""The windows that an operator has open: as its footprints have them, or as they are, which takes a recovery."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strandline.errors import OptionError, TruncatedError
from strandline.inputs.input import Input, Stretch
from strandline.inputs.input_of import input_of
from strandline.inputs.stream_definition import definition_of, require_inputs
from strandline.log.stream.log import Log
from strandline.operators.operator import Definition, Operator
from strandline.recovery import eventual_checkpoint
from strandline.recovery.recover import Stand, recover, repeat
from strandline.recovery.without_replay import last_empty


def saved_windows(log: Log) -> pa.Table:
    """Returns the checkpoint that a recovery begins with: each window as in its newest footprint."""
    definition, ends = definition_of(log.spec, log.storage.url), log.state.ends
    standings = enumerate(log.state.standings)
    return _table(log, definition, [eventual_checkpoint.load(log, definition, p, s, ends[p]) for p, s in standings])


def current_windows(log: Log, inputs: Sequence[Log]) -> pa.Table:
    """Returns every open window, with all that the operator has taken in; writes nothing.

    Raises `StreamMismatchError` if these are not the operator's inputs, `TruncatedError` if they do not hold what has
    to be replayed any more, `OptionError` if an operator without checkpoints has lost windows in a failure.
    """
    require_inputs(log, inputs)
    definition = definition_of(log.spec, log.storage.url, [input_.spec for input_ in inputs])
    input_ = input_of(definition, inputs, log.state.standings, log.spec.begins)
    operators = []
    for p, standing in enumerate(log.state.standings):
        stand = Stand.of(log, p)
        if standing.lets_go:
            operators.append(_repeated(log, input_, definition, stand))
        else:
            operators.append(recover(log, input_, definition, stand)[0])
    return _table(log, definition, operators, now=True)


def _repeated(log: Log, input_: Input, definition: Definition, stand: Stand) -> Operator:
    """Takes in all tuples again since the operator last had no window open, without a checkpoint."""
    partition, standing, begins = stand.partition, stand.standing, stand.beginning(log.spec.begins)
    empty = last_empty(standing, begins.input)
    operator = definition.fresh("set_aside")
    operator.input_end = empty
    operator.begin()
    try:
        taken_in = Stretch(partition, empty, begins.stands, standing.stands, stand.boundary, begins.input_marks)
        repeat(operator, input_.again, taken_in)
    except TruncatedError as gone:
        raise TruncatedError(
            "the policy of the operator saves no windows, and the input from which they could be computed is gone: "
            f"{gone.what}",
            where=gone.where,
            todo="run the operator with sl.cec(): its next batch saves every open window",
        ) from None
    if operator.open_windows != standing.open:
        raise OptionError(
            "the policy of the operator saves no windows, and a failure has cost some: the operator has "
            f"{standing.open} open, the "
            f"input from offset {empty} on makes {operator.open_windows}",
            where=f"{log.storage.url}, partition {partition}",
            todo="run the operator with sl.cec(): its next batch saves every window that it has",
        )
    return operator


def _table(log: Log, definition: Definition, operators: list[Operator], *, now: bool = False) -> pa.Table:
    """Returns the open windows in the columns of footprints; with `now`, as they are and not as their footprints have
    them."""
    columns = [c for c, _ in [*definition.result_columns, *definition.control_columns]]
    shown = [c for c in columns if c not in definition.hidden]
    schema = pa.schema([*(log.spec.block.field(name) for name in shown), pa.field("_partition", pa.int32())])
    tables = [schema.empty_table()]
    for partition, operator in enumerate(operators):
        found = pa.table(operator.windows(now=now), names=columns).select(shown)
        where = pa.repeat(pa.scalar(partition, pa.int32()), len(found))
        tables.append(pa.Table.from_arrays([*found.columns, where], schema.names))
    return pa.concat_tables(tables)
