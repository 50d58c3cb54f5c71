"""An operator's stream, seen from outside: its open windows, its recovery, what failures have cost it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.log.operator_state.loss_table import loss_table
from strandline.log.operator_state.origin_logs import opened_origins
from strandline.log.stream.log import Log
from strandline.recovery.stream_definition import definition_of
from strandline.recovery.window_report import current_windows, saved_windows

if TYPE_CHECKING:
    from strandline.spark.session.place import Place


def open_windows(log: Log, place: Place, *, now: bool) -> pa.Table:
    """Returns the windows of the operator that writes the stream: as saved, or as they are now."""
    if not now:
        return saved_windows(log)
    definition_of(log.spec, log.storage.url)
    return current_windows(log, opened_origins(log, lambda path: place.beside(path).open()))


def losses_of(log: Log) -> pa.Table:
    """Returns what failures have cost the operator that writes the stream, by partition, the oldest first."""
    definition_of(log.spec, log.storage.url)
    return loss_table(log)


def recovery_forecast(log: Log) -> list[dict[str, Any]]:
    """Returns for each partition what a recovery would read, and how long it would take.

    Everywhere else the two predictions have `recovery` in their names.
    """
    definition_of(log.spec, log.storage.url)
    rows = [{"partition": p, "mode": s.mode, **s.forecast()} for p, s in enumerate(log.state.standings)]
    return [{name.replace("_recovery_s", "_s"): value for name, value in row.items()} for row in rows]
