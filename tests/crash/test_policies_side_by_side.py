"""Operators with different policies in one program that is killed: only those that do not replay have other results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.inputs.stream_definition import definition_of
from strandline.log.operator_state.loss_record import loss_table
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.operators.aggregate.definition import AggregateDefinition
from tests.crash.conftest import PATIENCE_S
from tests.crash.lives import results
from tests.simulation.simulated_operators import SimulatedAggregate
from tests.simulation.specifications import Gap, with_gaps
from tests.support.operator_streams import bits

EXAMPLE = Path(__file__).parents[2] / "examples" / "13_policies_side_by_side.py"


@pytest.mark.long
@pytest.mark.drawn("examples that are killed")
def test_a_kill_changes_the_results_of_operators_that_do_not_replay_and_of_no_others(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE, tmp_path], check=False, capture_output=True, text=True, timeout=2 * PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cec: 18,000 results, 0 of those above missing or different\n    on record as lost: 0 tuples" in done.stdout
    undisturbed = results(tmp_path / "undisturbed")
    assert results(tmp_path / "cec") == undisturbed
    for name in ("partial", "none"):
        log = Log.open(LocalStorage(tmp_path / name))
        input_ = Log.open(LocalStorage(tmp_path / "items"))
        losses = loss_table(log).to_pylist()
        assert sorted(loss["partition"] for loss in losses) == [0, 1], "one kill, and nothing is lost twice"
        definition = definition_of(log.spec, name, [input_.spec])
        assert isinstance(definition, AggregateDefinition)
        found = results(tmp_path / name)
        assert found != undisturbed
        for loss in losses:
            p = loss["partition"]
            tuples = [(0, row) for table in input_.read(p) for row in table.to_pylist()]
            gap = Gap(loss["from"], loss["until"], None, is_empty=name == "none")
            expected = with_gaps(SimulatedAggregate(definition, True), tuples, None, [gap]).results
            assert found[p].equals(bits(pa.Table.from_pylist(expected, schema=log.spec.arrow)))
