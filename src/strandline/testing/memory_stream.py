"""Streams in memory for the operators of a test, fed by hand or by another operator."""

from __future__ import annotations

from typing import NoReturn

import pyarrow as pa

from strandline.control_columns import REASON
from strandline.errors import OptionError
from strandline.log.operator_state.loss_record import loss_table
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.kinds import only_results
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.spark.describe.operator_input import OperatorInput
from strandline.spark.session.place import Place
from strandline.wording import plural


class MemoryStream(OperatorInput):
    """A stream in memory; has what `Stream` and `Entry` have for operators."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._input_place = Place("memory://sl.testing")
        """For operators, whose messages name it: it has no address."""

    def __repr__(self) -> str:
        """Shows, for example: Feed(id, at, price; key=id, time=at, 2 partitions, 5 tuples)."""
        spec = self._log.spec
        told = [f"{', '.join(spec.columns)}; key={', '.join(spec.key)}", f"time={spec.time}"]
        told += [plural(spec.partitions, "partition"), plural(self.tuples().num_rows, "tuple")]
        return f"{type(self).__name__}({', '.join(told)})"

    # ------------------------------------------------------------------ operators

    @property
    def _input_spec(self) -> StreamSpec:
        """For operators: what this stream is."""
        return self._log.spec

    @property
    def input_log(self) -> Log:
        """For operators: the stream itself."""
        return self._log

    def _opened_input(self, limit_s: float | None = None) -> NoReturn:
        """Raises: Spark cannot see this process's memory."""
        raise OptionError(
            "an operator over a stream of sl.testing is not started with Spark",
            todo="call sl.testing.run(…) with it, then step()",
        )

    # ------------------------------------------------------------------ what it holds

    def tuples(self) -> pa.Table:
        """Returns the tuples of the stream, in the order of their publication, then by partition."""
        return self._published_after(-1)

    def _published_after(self, seq: int) -> pa.Table:
        self._log.refresh()
        names = list(self._log.spec.columns)
        tables = [
            only_results(self._log.read_block(block)).select(names)
            for m in self._log.after(seq)
            if isinstance(m, AppendCommit)
            for block in m.blocks
            if block.partition != self._log.spec.late
        ]
        return pa.concat_tables([self._log.spec.arrow.empty_table(), *tables]).combine_chunks()

    def losses(self) -> pa.Table:
        """Returns what crashes have cost an operator whose policy does not replay, as `Stream.losses` does."""
        self._log.refresh()
        return loss_table(self._log)

    def side_log(self) -> pa.Table:
        """Returns the tuples that were set aside, late or otherwise unfit, with the reason in `_reason`."""
        log = self._log
        log.refresh()
        names = [f.name for f in log.spec.block if not f.name.startswith("_")]
        tables = [
            table.select(names).append_column(REASON, pa.array([block.reason] * len(table), pa.string()))
            for block in log.blocks(log.spec.late)
            for table in [log.read_block(block)]
        ]
        empty = pa.schema([*(log.spec.block.field(n) for n in names), pa.field(REASON, pa.string())]).empty_table()
        return pa.concat_tables([empty, *tables]).combine_chunks()
