"""One seed, one run of an operator whose policy may lose something: results are those without what is on record.

As in `operator_world` processes die anywhere; policies change from life to life, most of them do not replay. What must
hold: results, values to the bit and order, are those of the specification with the recorded gaps; what closed in a
recovery is set aside as incomplete, once; nothing is lost twice, nor without a record, nor more than since a save.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from strandline.checkpoint.policy import Policy, cec, instant, none, partial
from strandline.log.operator_state import loss_record
from strandline.log.operator_state.loss import Loss
from strandline.log.stream.log import Log
from strandline.operators.operator import Definition
from strandline.recovery.window_report import current_windows
from strandline.running.step import Done, Step
from tests.simulation.machines import Folder
from tests.simulation.operator_world import World, _difference, require, small_index, small_state, small_steps
from tests.simulation.simulated_keyed import some_keyed
from tests.simulation.simulated_operators import SimulatedOperator, some_aggregate, some_operator_over_several
from tests.simulation.specifications import Gap, with_gaps
from tests.support.operator_streams import Row, bits


def run(seed: int, folder: Path | None = None) -> list[pa.Table]:
    """Runs the seed; with a folder, the state cache is the real one. Returns the results of each partition."""
    rng = Random(seed)
    with small_index(Random(seed)), small_steps(Random(seed)), small_state(Random(seed)):
        operator: SimulatedOperator
        if seed % 10 == 9:  # every process has to compile these functions
            operator = some_keyed(rng)
        elif seed % 2:
            operator = some_operator_over_several(rng, is_compared_with_plain=True)
        else:
            operator = some_aggregate(rng, 1, is_compared_with_plain=True)
        world = LossyWorld(rng, operator, folder)
        with world.armed():
            world.run()
        return world.results


class LossyWorld(World):
    """The same disk, clock and machines; an operator that may forget."""

    def __init__(self, rng: Random, operator: SimulatedOperator, folder: Path | None) -> None:
        super().__init__(rng, operator, folder)
        self.may_rot = False
        self.closed_until: dict[tuple[int, int, int], int | None] = {}
        """Up to which time windows were closed, by partition, commit and place of a loss."""
        self.losses = 0

    def _policy(self) -> Policy:
        rng = self.rng
        seldom = partial("1 hour")
        often = partial(rng.choice(["1 us", "10 ms", "50 ms"]))
        return rng.choice([often, often, seldom, seldom, seldom, seldom, none(), cec(), instant("10 ms")])

    def _run_step(self, s: Step, policy: Policy, output: Log, inputs: tuple[Log, ...]) -> Done:
        if not self.is_calm and self.rng.random() < 0.2:
            self.machines[s.partition].lose()
        done = super()._run_step(s, policy, output, inputs)
        for loss in done.recovery.losses if done.recovery is not None else ():
            self.closed_until[loss.partition, loss.commit, loss.until] = s.slice.begin.bound
        return done

    def _look(self, output: Log) -> None:
        """Somebody looks at the open windows: as many as the standing says, whatever was lost before."""
        standings, inputs = output.state.standings, self._open_inputs(self.faulty.other_process())
        if any(standing.lets_go for standing in standings) or not self.definition.can_compute:
            return
        if self.definition.kind == "keyed":
            return  # a user's function is not known to others
        failpoint, self.failpoint = self.failpoint, None
        require(len(current_windows(output, inputs)) == sum(s.open for s in standings), "other windows")
        self.failpoint = failpoint

    def _gaps(self, log: Log, partition: int) -> list[Gap]:
        standing = log.state.standings[partition] if log.state.standings else None
        if standing is None or standing.losses is None:
            return []
        losses: list[Loss] = [*loss_record.on_record(log.storage, standing.losses).losses][::-1]
        require(standing.losses.count == len(losses), "losses are counted that are not on record")
        require(standing.losses.tuples == sum(loss.tuples for loss in losses), "tuples are counted wrongly")
        self.losses += len(losses)
        return [
            Gap(
                loss.first,
                loss.until,
                self.closed_until[partition, loss.commit, loss.until] if self.definition.has_times else None,
                loss.reason == "nothing saved",
            )
            for loss in losses
        ]

    def _check(self) -> None:
        log = Log.open(Folder(self.faulty.other_process(), "output"), self.clock)
        inputs = self._open_inputs(self.faulty.other_process())
        self._see(log)
        incomplete: list[Row] = []
        aside: list[Any] | None = []
        for p in range(self.partitions):
            boundary = self.source.boundary(inputs, p)
            tuples = self.source.serialised(p, boundary)
            taken = log.state.standings[p].input if log.state.standings else 0
            require(taken == len(tuples), "input is left over:", taken, "of", len(tuples), "tuples were taken in")
            found = pa.concat_tables(self.seen[p]).combine_chunks()
            expected = with_gaps(self.operator, tuples, boundary, self._gaps(log, p))
            right = bits(pa.Table.from_pylist(expected.results, schema=log.spec.arrow))
            require(found.equals(right), _difference(p, found, right))
            incomplete += expected.incomplete
            aside = None if aside is None or expected.aside is None else aside + expected.aside
            self.results.append(found)
        self._check_aside(log.spec.arrow, self.definition, incomplete, aside)

    def _check_aside(self, schema: pa.Schema, definition: Definition, incomplete: list[Row], aside: Any) -> None:
        marked = [row for row in self.aside.values() if row["_reason"] == "incomplete"]
        others = [row for row in self.aside.values() if row["_reason"] != "incomplete"]

        def texts(rows: list[Row]) -> list[str]:
            return sorted(map(repr, bits(pa.Table.from_pylist(rows, schema=schema)).to_pylist()))

        require(texts(marked) == texts(incomplete), len(marked), "are incomplete, it should be", len(incomplete))
        if aside is not None:
            names = aside[0].keys() if aside else ()
            kept = [{name: row[name] for name in names} for row in others]
            require(sorted(kept, key=repr) == sorted(aside, key=repr), len(kept), "are set aside, not", len(aside))
