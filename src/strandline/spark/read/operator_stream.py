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
    """Returns for each partition what a recovery would read, and how long it would take."""
    definition_of(log.spec, log.storage.url)
    return [
        {
            "partition": p,
            "open_windows": s.open,
            "extent": s.extent,
            "replay": s.replay,
            "read_again": s.read_again,
            "input": s.input,
            "oldest_input": s.oldest,
            "mode": s.mode,
            "predicted_s": round(s.predicted_s, 3),
            "predicted_cold_s": round(s.predicted_cold_s, 3),
            "measured": s.is_measured,
        }
        for p, s in enumerate(log.state.standings)
    ]
