"""Operators written as classes between two logs: steps, lost processes, attempts that were not accepted, policies."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import strandline as sl
from strandline.checkpoint.policy import Policy, instant, none, partial
from strandline.errors import CorruptManifestError, InputError, NullTimeError, SchemaError, StreamMismatchError
from strandline.inputs.stream_definition import definition_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.kinds import only_results
from strandline.log.stream.log import Log
from strandline.operators.partition_wide import object_at_work, state_values
from strandline.operators.partition_wide.definition import PartitionWideDefinition
from strandline.operators.partition_wide.user_operator import UserOperator
from strandline.recovery.checkpoint_audit import audit
from strandline.recovery.window_report import current_windows, saved_windows
from strandline.running.element import Element
from strandline.running.state.live_operators import LiveOperator, LiveOperators
from strandline.running.state.state_cache import StateCache
from tests.support.operator_streams import (
    Row,
    Streams,
    Tuples,
    output_spec,
    set_aside,
    steps_of,
    uninterrupted,
    uninterrupted_and_aside,
)
from tests.support.user_operators import POISON, Running, Sorted, definition

POLICIES = [instant("1 hour"), instant("1 s"), instant("10 s")]


class World:
    """Streams whose process can be lost."""

    def __init__(
        self, d: PartitionWideDefinition, folder: Path, *, on_error: Any = "stop", on_disk: bool = False
    ) -> None:
        self._folder = folder
        self._process = 0
        storages = (LocalStorage(folder / "input"), LocalStorage(folder / "output")) if on_disk else None
        self.streams = Streams(d, self._cache, storages=storages, on_error=on_error)  # type: ignore[arg-type]

    def _cache(self, partition: int) -> StateCache:
        return StateCache(self._folder / f"process-{self._process}-{partition}")

    def lose_the_process(self) -> None:
        self._process += 1


def some_rows(rng: Random, many: int, poisonous: float = 0.0) -> list[list[Row]]:
    source = Tuples(rng)
    found = [source.rows(rng.randint(1, 12)) for _ in range(many)]
    for row in (row for rows in found for row in rows):
        if rng.random() < poisonous:
            row["v"] = POISON
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("make", [Running, Sorted])
def test_lost_processes_and_other_policies_change_no_result(make: Any, seed: int, tmp_path: Path) -> None:
    rng, d = Random(seed), definition(make())
    world, batches = World(d, tmp_path), some_rows(rng, 30)
    policy: Policy = rng.choice(POLICIES)
    for rows in batches:
        world.streams.append(rows)
        if rng.random() < 0.2:
            policy = rng.choice(POLICIES)
        if rng.random() < 0.6:
            world.streams.drain(policy, tuples_max=rng.choice([1, 20]))
        if rng.random() < 0.4:
            world.lose_the_process()
    world.streams.drain(policy)
    boundary = world.streams.input.state.boundaries[0]
    every = [row for rows in batches for row in rows]
    assert world.streams.results().equals(uninterrupted(d, every, boundary))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(6))
def test_tuples_over_which_it_raises_are_set_aside_and_leave_no_trace(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_at_work, "REPEATED_BYTES_MIN", 300)
    rng, d = Random(seed), definition(Running(poison=POISON))
    world, batches = World(d, tmp_path, on_error="set_aside"), some_rows(rng, 25, poisonous=0.1)
    for rows in batches:
        world.streams.append(rows)
        if rng.random() < 0.6:
            world.streams.drain(rng.choice(POLICIES))
        if rng.random() < 0.3:
            world.lose_the_process()
    world.streams.drain(instant("1 s"))
    every = [row for rows in batches for row in rows]
    results, aside = uninterrupted_and_aside(d, every, None)  # type: ignore[arg-type]
    plain = definition(Running())
    kept = [row for row in every if row["v"] != POISON]
    assert results.equals(uninterrupted(plain, kept, None))  # type: ignore[arg-type]
    assert world.streams.results().equals(results)
    found = set_aside(world.streams.output)["process"]
    assert [row["_input"] for row in found] == [row["_input"] for row in aside]
    assert [row["_input"] for row in found] == [i for i, row in enumerate(every) if row["v"] == POISON]
    assert [row["t"] for row in found] == [row["t"] for row in every if row["v"] == POISON]


class Unsaved(Running):
    """Its state cannot be saved."""

    def get_checkpoint(self) -> dict[str, Any]:
        return {"model": object()}


def test_a_state_that_cannot_be_copied_is_no_reason_to_set_tuples_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_at_work, "REPEATED_BYTES_MIN", 1)
    world = World(definition(Unsaved()), tmp_path, on_error="set_aside")
    world.streams.append([_row(1, 0, 1.0), _row(1, 1, 1.0)])
    with pytest.raises(InputError, match=r"Unsaved.get_checkpoint: 'model' is of type object"):
        world.streams.drain(none())
    assert set_aside(world.streams.output) == {}


class Counted(Running):
    """Counts its objects and their checkpoints."""

    made: ClassVar[int] = 0
    saved: ClassVar[int] = 0

    def __init__(self, rate: float = 0.25) -> None:
        super().__init__(rate)
        type(self).made += 1

    def get_checkpoint(self) -> dict[str, Any]:
        type(self).saved += 1
        return super().get_checkpoint()


def counted_world(tmp_path: Path) -> World:
    Counted.made = Counted.saved = 0
    world = World(definition(Counted()), tmp_path)
    Counted.made = 0
    return world


def test_the_object_stays_and_its_state_is_not_serialised_every_batch(tmp_path: Path) -> None:
    world = counted_world(tmp_path)
    for rows in some_rows(Random(1), 20):
        world.streams.append(rows)
        world.streams.drain(instant("1 hour"))
    assert (Counted.made, Counted.saved) == (1, 1)  # the first batch saves it
    world.lose_the_process()
    world.streams.append([_row(1, 1000, 1.0)])
    ((done,),) = world.streams.drain(instant("1 hour"))
    assert done.recovery is not None
    assert done.recovery.replayed == done.standing.input - 1 - len(some_rows(Random(1), 1)[0])
    assert (Counted.made, Counted.saved) == (2, 1)


def test_an_object_that_an_attempt_touched_which_was_not_accepted_is_thrown_away(tmp_path: Path) -> None:
    streams = counted_world(tmp_path).streams
    streams.append([_row(1, 0, 1.0), _row(2, 1, 1.0)])
    streams.drain(instant("1 hour"))
    streams.append([_row(3, 2, 1.0)])
    element = Element(streams.plan, instant("1 hour"))
    batch = element.input((streams.input,)).next(streams.output.state, element.tuples_max)
    assert batch is not None
    (lost,) = streams.run_steps(steps_of(batch, streams.output.state, "lost"), instant("1 hour"))  # nobody publishes it
    assert lost.recovery is None
    ((done,),) = streams.drain(instant("1 hour"))
    assert done.recovery is not None
    assert Counted.made == 2
    every = [_row(1, 0, 1.0), _row(2, 1, 1.0), _row(3, 2, 1.0)]
    assert streams.results().equals(uninterrupted(definition(Running()), every, None))  # type: ignore[arg-type]


def test_a_step_that_fails_leaves_no_object(tmp_path: Path) -> None:
    world = World(definition(Running(poison=POISON)), tmp_path)
    world.streams.append([_row(1, 0, 1.0)])
    world.streams.drain(instant("1 hour"))
    world.streams.append([_row(1, 1, 1.0), {**_row(2, 1, 1.0), "v": POISON}])
    with pytest.raises(InputError) as caught:
        world.streams.drain(instant("1 hour"))
    assert caught.value.what == "Running.process raised ValueError: poison"
    assert caught.value.where.startswith("input offsets 1 to 2; ")
    assert "tests/support/user_operators.py, line" in caught.value.where
    assert 'raise ValueError("poison")' in caught.value.where
    world.streams.on_error = "set_aside"
    ((done,),) = world.streams.drain(instant("1 hour"))
    assert done.recovery is not None
    assert [row["_input"] for row in set_aside(world.streams.output)["process"]] == [2]


def test_the_table_of_objects_is_bounded_and_gives_one_to_one_attempt() -> None:
    live, d = LiveOperators(at_most=2), definition(Running())
    for number in range(4):
        live.leave(f"p{number}", LiveOperator(f"attempt-{number}", d.fresh()))
    assert live.take("p0", "attempt-0") is None
    assert live.take("p3", "attempt-2") is None
    assert live.take("p3", "attempt-3") is None  # whoever asked before has taken it out
    assert live.take("p2", "attempt-2") is not None
    assert live.take("p2", "attempt-2") is None


def test_none_begins_anew_after_a_failure(tmp_path: Path) -> None:
    world = World(definition(Running()), tmp_path)
    world.streams.append([_row(1, 0, 1.0), _row(1, 1, 1.0)])
    world.streams.drain(none())
    world.lose_the_process()
    world.streams.append([_row(1, 2, 1.0)])
    world.streams.drain(none())
    assert world.streams.results().column("n").to_pylist() == [1, 2, 1]
    world.streams.append([_row(1, 3, 1.0)])
    world.streams.drain(instant("1 hour"))  # saved at once
    world.lose_the_process()
    world.streams.append([_row(1, 4, 1.0), _row(1, 5, 1.0)])
    world.streams.drain(instant("1 hour"))
    assert world.streams.results().column("n").to_pylist() == [1, 2, 1, 2, 4]


def test_partial_goes_on_from_the_last_saved_state_and_says_what_was_left_out(tmp_path: Path) -> None:
    world = World(definition(Running()), tmp_path)
    for number in range(4):  # only the first of these batches saves
        world.streams.append([_row(1, number, 1.0)])
        world.streams.drain(partial("1 hour"))
    assert world.streams.results().column("n").to_pylist() == [1, 2, 4]
    world.lose_the_process()
    world.streams.append([_row(1, 4, 1.0)])
    ((done,),) = world.streams.drain(partial("1 hour"))
    assert world.streams.results().column("n").to_pylist() == [1, 2, 4, 2]  # as if tuples 1 to 3 had never come
    assert done.recovery is not None
    assert [(loss.first, loss.until) for loss in done.recovery.losses] == [(1, 4)]
    world.lose_the_process()  # the step after a loss has saved what was left
    world.streams.append([_row(1, 5, 1.0), _row(1, 6, 1.0)])
    world.streams.drain(partial("1 hour"))
    assert world.streams.results().column("n").to_pylist() == [1, 2, 4, 2, 4]


def test_a_rotten_state_is_dropped_by_partial_and_replayed_by_instant(tmp_path: Path) -> None:
    for policy, expected in ((partial("1 s"), [1, 2, 1]), (instant("1 s"), [1, 2, 4])):
        world = World(definition(Running()), tmp_path / policy.kind)
        for number in range(3):
            world.streams.append([_row(1, number, 1.0)])
            world.streams.drain(policy)
            world.streams.clock.advance(2.0)  # type: ignore[attr-defined]
        (*_, last) = world.streams.output.blocks(0)
        storage: Any = world.streams.output_storage
        data = storage.read(last.file)
        storage.put(last.file, data[:100] + bytes([data[100] ^ 1]) + data[101:])
        world.lose_the_process()
        world.streams.append([_row(1, 4, 1.0)])
        world.streams.drain(policy)
        sound = [block for block in world.streams.output.blocks(0) if block.file != last.file]
        found = [only_results(world.streams.output.read_block(block)).column("n").to_pylist() for block in sound]
        assert [n for numbers in found for n in numbers] == expected, policy


def test_the_saved_state_is_told_and_checked(tmp_path: Path) -> None:
    world = World(definition(Running()), tmp_path, on_disk=True)
    world.streams.append([_row(1, 3, 1.0), _row(2, 5, 2.0)])
    world.streams.drain(instant("1 hour"))
    found = saved_windows(world.streams.output).to_pylist()
    assert [(r["_name"], r["_type"], r["t"], r["_input"]) for r in found] == [
        ("weights", '{"numpy": "<f8", "shape": [3, 2], "order": "C"}', 5, 2),
        ("n", '"integer"', 5, 2),
    ]
    assert np.frombuffer(found[0]["_bytes"]).reshape(3, 2)[1].sum() == 0.25
    assert audit(world.streams.output).problems == ()
    world.streams.append([_row(1, 6, 1.0)])
    world.streams.drain(instant("1 hour"))
    assert audit(world.streams.output).problems == ()
    with pytest.raises(InputError, match="does not have the class Running"):
        current_windows(world.streams.output, (world.streams.input,))


def test_large_values_lie_in_many_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_values, "CELL_BYTES_MAX", 16)
    d = definition(Running())
    world = World(d, tmp_path)
    world.streams.append([_row(1, 3, 1.0), _row(2, 5, 2.0)])
    ((done,),) = world.streams.drain(instant("1 hour"))
    assert (done.standing.extent, done.standing.saved, done.checked) == (4, 1, 4)
    world.lose_the_process()
    world.streams.append([_row(1, 6, 1.0)])
    world.streams.drain(instant("1 hour"))
    every = [_row(1, 3, 1.0), _row(2, 5, 2.0), _row(1, 6, 1.0)]
    assert world.streams.results().equals(uninterrupted(d, every, None))  # type: ignore[arg-type]


def test_a_state_with_a_row_missing_or_changed_is_refused() -> None:
    state = state_values.encoded({"a": np.arange(3), "b": "text"}, "Model")
    rows = [(number, row.checksum(number), row) for number, row in enumerate(state)]
    assert state_values.require_whole(rows[::-1], 2, "here") == list(state)
    with pytest.raises(CorruptManifestError, match="of the 2 rows of a saved state 1 are there"):
        state_values.require_whole(rows[1:], 2, "here")
    wrong = state_values.StateRow("b", '"string"', b"tixt")
    with pytest.raises(CorruptManifestError, match="1 are there and sound"):
        state_values.require_whole([rows[0], (1, rows[1][1], wrong)], 2, "here")


def _row(key: int, time: int, x: float) -> Row:
    return {"k": key, "s": "s", "v": 0, "x": x, "t": time}


# ---------------------------------------------------------------------- what it is, and other versions of it


def test_stream_json_says_what_the_operator_is() -> None:
    d = definition(Running(0.5))
    known = definition_of(output_spec(d), "")  # type: ignore[arg-type]
    assert known.to_json() == d.to_json()
    assert not known.can_compute
    assert known.text(is_timestamp=False) == (
        "class Running(poison=0, rate=0.5): output k long, t long, weight double, n long"
    )


class Louder(Running):
    version = 2

    def process(self, tuples: pa.Table) -> pa.Table | None:
        self.n += 100 * tuples.num_rows
        return super().process(tuples)


def test_a_later_version_takes_the_state_over_and_an_earlier_one_is_refused(tmp_path: Path) -> None:
    world = World(definition(Running()), tmp_path)
    world.streams.append([_row(1, 0, 1.0)])
    world.streams.drain(instant("1 hour"))
    with pytest.raises(StreamMismatchError, match="version = 2 in the class") as caught:
        world.streams.output.spec.require_same(output_spec(definition(Running(0.75))), "output")  # type: ignore[arg-type]
    assert "it is Running(poison=0, rate=0.25), in this program Running(poison=0, rate=0.75)" in str(caught.value)
    later = definition(Louder())
    world.streams.output.spec.require_same(output_spec(later), "output")  # type: ignore[arg-type]
    world.streams.plan = later  # type: ignore[assignment]
    world.streams.append([_row(1, 1, 1.0)])
    ((done,),) = world.streams.drain(instant("1 hour"))
    assert done.recovery is not None  # of another program: not the object that is there
    assert done.checked == 2  # saved at once
    assert world.streams.results().column("n").to_pylist() == [1]
    with pytest.raises(StreamMismatchError, match="gone on with version 2"):
        live = Log.open(world.streams.output_storage)
        live.spec.require_same(output_spec(definition(Running())), "output")  # type: ignore[arg-type]


# ---------------------------------------------------------------------- what methods return


class Returning(UserOperator):
    """Returns whatever it is told to."""

    output = "k long, t long, s string"
    time = "t"
    value: ClassVar[Any] = None

    def process(self, tuples: pa.Table) -> Any:
        return type(self).value

    def get_checkpoint(self) -> dict[str, Any]:
        return {}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        assert state == {}


def returned(**columns: Any) -> pa.Table:
    return pa.table({"k": [1], "t": [50], "s": ["a"], **columns})


@pytest.mark.parametrize(
    ("value", "kind", "what"),
    [
        ([1], InputError, "Returning.process returned list"),
        (returned().drop_columns(["s"]), SchemaError, "returned the columns k, t; output has k, t, s"),
        (returned(more=[1]), SchemaError, "returned the columns k, t, s, more"),
        (returned(s=[1]), SchemaError, "returned 's' of type int64; output says string"),
        (returned(k=[1.0]), SchemaError, "returned 'k' of type double; output says int64"),
        (returned(k=pa.array([1 << 63], pa.uint64())), InputError, "returned values of 'k' that do not fit"),
        (returned(t=pa.array([None], pa.int64())), NullTimeError, "1 result without a time"),
        (returned(t=[1]), InputError, "before the boundary 32"),
    ],
)
def test_what_a_method_must_not_return(value: Any, kind: type[InputError], what: str, tmp_path: Path) -> None:
    world = World(definition(Returning()), tmp_path)
    Returning.value = None
    world.streams.append([_row(1, 40, 1.0)])
    world.streams.drain(instant("1 hour"))
    Returning.value = value
    world.streams.append([_row(1, 41, 1.0)])
    with pytest.raises(kind) as caught:
        world.streams.drain(instant("1 hour"))
    assert what in caught.value.what
    assert caught.value.where == "input offset 1"
    assert caught.value.todo
    Returning.value = returned(k=pa.array([1], pa.int32()), s=pa.array(["a"]).dictionary_encode())
    world.streams.drain(instant("1 hour"))
    assert world.streams.results().to_pylist() == [{"k": 1, "t": 50, "s": "a"}]


def test_without_state_nothing_but_a_mark_is_saved(tmp_path: Path) -> None:
    Returning.value = returned()
    world = World(definition(Returning()), tmp_path)
    for _ in range(2):
        world.streams.append([_row(1, 40, 1.0)])
        world.streams.drain(instant("1 s"))
        world.lose_the_process()
    assert saved_windows(world.streams.output).column("_name").to_pylist() == [None]


# ---------------------------------------------------------------------- in a user's test, and over a union


class Totals(sl.Operator):
    output = "id long, at timestamp, total double"
    time = "at"

    def __init__(self) -> None:
        self.total = 0.0

    def process(self, tuples: pa.Table) -> pa.Table:
        totals = self.total + np.cumsum(tuples.column("price").to_numpy())
        self.total = float(totals[-1])
        return tuples.select(["id", "at"]).append_column("total", pa.array(totals))

    def get_checkpoint(self) -> dict[str, Any]:
        return {"total": self.total}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def test_it_runs_in_the_kit_for_tests_over_what_where_leaves_and_over_a_union() -> None:
    columns = "id long, at timestamp, price double"
    one, two = (sl.testing.stream(columns, key="id", time="at", lateness="0 s") for _ in range(2))
    run = sl.testing.run(one.where(pa.compute.field("price") > 0).apply(Totals()))
    both = sl.testing.run(sl.union(one, two).apply(Totals()))
    for number, price in enumerate([1.0, -5.0, 2.0, 4.0]):
        one.add([(1, f"2026-01-01 00:00:{number:02}", price)])
        two.add([(1, f"2026-01-01 00:00:{number:02}", 10.0)])
        run.step()
        both.step()
        if number in (1, 2):
            run.crash()
            both.crash()
    assert [row["total"] for row in run.rows] == [1.0, 3.0, 7.0]
    assert run.recoveries == 2
    assert [row["total"] for row in both.rows] == [1.0, 11.0, 6.0, 16.0, 18.0, 28.0]
    assert both.recoveries == 2


def test_time_that_passed_without_a_step_is_promised_all_the_same() -> None:
    Returning.value = None
    source = sl.testing.stream("k long, s string, t long", key="k", time="t", lateness=0)
    run = sl.testing.run(source.apply(Returning()))
    source.add([(1, "a", 10)])
    run.step()
    Returning.value = returned(t=[9])
    source.add([(1, "a", 11)])
    with pytest.raises(InputError, match="before the boundary 10"):
        run.step()
