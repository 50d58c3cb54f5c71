"""Makes the golden stream of an operator that has lost something: format 4, mode `partial`, a record of losses.

`python -m tests.golden.make_lossy` was run by the version that made the format; what is there is never written again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from strandline.checkpoint.policy import partial
from strandline.clock import ManualClock
from strandline.log.operator_state.loss_record import loss_table
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from tests.golden import make_operators as made
from tests.support.operator_streams import struct

FOLDER = Path(__file__).parent / "lossy"
NAME = "decimals"
POLICY = partial("1 hour")


def losses(output: Log) -> list[list[object]]:
    """What is on record, as plain JSON values."""
    names = ("from", "until", "windows", "incomplete", "commit", "reason")
    return [[row[name] for name in names] for row in loss_table(output).to_pylist()]


def main() -> None:
    plan, clock = made.plan(NAME), ManualClock(1_767_268_800_000_000)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        spec = StreamSpec("golden-input", struct([*made.COLUMNS.items()]), ("k",), "t", 1, made.LATENESS)
        input_ = Log.create(LocalStorage(root / "input"), spec, clock)
        operator = {**plan.to_json(), "footprints": [list(c) for c in plan.control_columns]}
        upstream = {"stream": "golden-input", "path": ""}
        columns = struct(plan.result_columns)
        spec = StreamSpec("golden-output", columns, ("k",), "window_end", 1, 0, operator=operator, upstream=upstream)
        output = Log.create(LocalStorage(root / "output"), spec, clock)
        for first, end in ((0, 20), (20, 41), (41, 60)):
            made.append(input_, first, end)
            made.work(plan, input_, output, root / "cache", POLICY)
        for stream in ("input", "output"):
            shutil.copytree(root / stream, FOLDER / stream)
        known = losses(output)
        for first, end in ((60, 75), (75, 90)):
            made.append(input_, first, end)
            made.work(plan, input_, output, root / "cache", POLICY)
        expected = {"losses": known, "losses_later": losses(output), "results": made.results(output)}
        (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
