"""Keyed operators between two logs: steps, lost machines, other policies, other functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark import cloudpickle

from strandline.checkpoint.policy import Policy, cec, instant, none
from strandline.errors import InputError, StreamMismatchError
from strandline.log.log import Log
from strandline.log.operator_words import operator_text
from strandline.log.storage.local_storage import LocalStorage
from strandline.operators.keyed.definition import KeyedDefinition, KeyedInput
from strandline.operators.keyed.keyed_function import keyed
from strandline.operators.keyed.returned import CLOSE, EMIT
from strandline.processing.kernel_warm_up import Kernels, live_in_small
from strandline.processing.serialised_intake import intake_of
from strandline.processing.state_cache import StateCache
from strandline.recovery.checkpoint_audit import audit
from strandline.recovery.stream_definition import definition_of
from strandline.recovery.window_report import current_windows, saved_windows
from tests.operator_streams import COLUMNS, LATENESS, Row, Streams, Tuples, input_spec, output_spec, uninterrupted

POLICIES = [cec(extent="1x"), cec(extent="2x", replay=40), cec(), instant("1 hour"), instant("1 s")]


def farewell(state: Any, out: Any) -> int:
    out.mean = state.total / state.n
    out.last = state.last
    return EMIT


@keyed(state="n long, total double, last string", output="mean double, last string", expire=9, on_expire=farewell)
def means(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    if not row.is_null("x"):
        state.total += row.x
    if row.v == -7:
        raise ValueError("no such value")
    out.last = state.last
    state.last = row.s
    out.mean = state.total / state.n
    if state.n == 12:
        return EMIT + CLOSE
    return EMIT if state.n % 3 == 0 else 0


def definition(function: Any, key: str = "s") -> KeyedDefinition:
    return KeyedDefinition.of(function, KeyedInput(COLUMNS, (key,), "t", LATENESS))


class World:
    """Streams whose machine can be lost."""

    def __init__(self, d: KeyedDefinition, folder: Path, *, on_disk: bool = False) -> None:
        self._folder = folder
        self._machine = 0
        storages = (LocalStorage(folder / "input"), LocalStorage(folder / "output")) if on_disk else None
        self.streams = Streams(d, self._cache, storages=storages, on_error="set_aside")  # type: ignore[arg-type]

    def _cache(self, partition: int) -> StateCache:
        return StateCache(self._folder / f"machine-{self._machine}-{partition}")

    def lose_the_machine(self) -> None:
        self._machine += 1


def some_rows(rng: Random, many: int) -> list[list[Row]]:
    source = Tuples(rng)
    found = [source.rows(rng.randint(1, 12)) for _ in range(many)]
    for rows in found:
        for row in rows:
            if rng.random() < 0.05:
                row["v"] = -7
    return found


@pytest.mark.parametrize("seed", range(6))
def test_lost_machines_and_other_policies_change_no_result(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    world, d = World(definition(means), tmp_path), definition(means)
    batches = some_rows(rng, 30)
    policy: Policy = rng.choice(POLICIES)
    for rows in batches:
        world.streams.append(rows)
        if rng.random() < 0.2:
            policy = rng.choice(POLICIES)
        if rng.random() < 0.6:
            world.streams.drain(policy, tuples_max=rng.choice([1, 20]))
        if rng.random() < 0.4:
            world.lose_the_machine()
    world.streams.drain(policy)
    boundary = world.streams.input.state.boundaries[0]
    every = [row for rows in batches for row in rows]
    assert world.streams.results() == uninterrupted(d, every, boundary)  # type: ignore[arg-type]


def test_open_windows_are_told_with_their_state(tmp_path: Path) -> None:
    world = World(definition(means), tmp_path, on_disk=True)
    world.streams.append([_row("a", 0, 1.0), _row("b", 1, 2.0), _row("a", 2, 3.0)])
    world.streams.drain(cec())
    found = saved_windows(world.streams.output).to_pylist()
    assert [(r["s"], r["_state_n"], r["_state_total"], r["_rows"]) for r in found] == [
        ("a", 2, 4.0, 2),
        ("b", 1, 2.0, 1),
    ]
    assert current_windows(world.streams.output, (world.streams.input,), intake_of).num_rows == 2
    world.streams.append([_row("a", 3, 1.0)])
    world.streams.drain(cec())
    with pytest.raises(InputError, match="not known here"):  # it would have to be called
        current_windows(world.streams.output, (world.streams.input,), intake_of)


def _row(key: str, time: int, x: float) -> Row:
    return {"k": 1, "s": key, "v": 0, "x": x, "t": time}


def test_stream_json_says_what_the_function_is() -> None:
    d = definition(means)
    spec = output_spec(d)  # type: ignore[arg-type]
    known = definition_of(spec, "")
    assert known.to_json() == d.to_json()
    assert known == d
    assert operator_text(d.to_json(), is_timestamp=False) == (
        "keyed function: state n long, total double, last string; output mean double, last string; keys expire after 9"
    )


def counting(step: int, version: int, name: str = "n") -> Any:
    @keyed(state="n long", output=f"{name} long", version=version)
    def count(state: Any, row: Any, out: Any) -> int:
        state.n += step
        out.n = state.n
        return EMIT

    return definition(count, "k")


def continue_with(world: World, d: KeyedDefinition, policy: Policy, rows: Sequence[Row]) -> None:
    world.streams.output.spec.require_same(output_spec(d), "output")  # type: ignore[arg-type]
    world.streams.plan = d  # type: ignore[assignment]
    world.streams.append(rows)
    world.streams.drain(policy)


def test_a_changed_function_is_refused_unless_a_later_version_says_that_it_is_meant(tmp_path: Path) -> None:
    world = World(counting(1, 1), tmp_path)
    continue_with(world, counting(1, 1), cec(), [_row("a", 0, 0.0)])
    spec = world.streams.output.spec
    with pytest.raises(StreamMismatchError, match=r"its function has 'state.n \+= 1' where") as refused:
        spec.require_same(output_spec(counting(10, 1)), "")
    assert "keyed(…, version=2)" in refused.value.todo
    spec.require_same(output_spec(counting(10, 2)), "")
    continue_with(world, counting(10, 2), cec(), [_row("a", 1, 0.0)])
    world.streams.output = Log.open(world.streams.output.storage, world.streams.clock)
    with pytest.raises(
        StreamMismatchError, match="gone on with version 2 of its function, this program says version 1"
    ):
        world.streams.output.spec.require_same(output_spec(counting(1, 1)), "")


@pytest.mark.parametrize("policy", [cec(), instant("1 hour")])
def test_a_later_version_goes_on_with_the_state_and_is_recovered_as_it_was(policy: Policy, tmp_path: Path) -> None:
    world = World(counting(1, 1), tmp_path)
    for second in range(3):
        continue_with(world, counting(1, 1), policy, [_row("a", second, 0.0)])
    continue_with(world, counting(10, 2), policy, [_row("a", 3, 0.0)])
    world.lose_the_machine()  # tuples of the first version must not be replayed into the second
    continue_with(world, counting(10, 2), policy, [_row("a", 4, 0.0)])
    world.lose_the_machine()
    continue_with(world, counting(10, 2), policy, [_row("a", 5, 0.0)])
    assert world.streams.results().column("n").to_pylist() == [1, 2, 3, 13, 23, 33]


def test_without_checkpoints_a_lost_machine_forgets_its_keys(tmp_path: Path) -> None:
    world = World(counting(1, 1), tmp_path)
    continue_with(world, counting(1, 1), none(), [_row("a", 0, 0.0)])
    world.lose_the_machine()
    continue_with(world, counting(1, 1), none(), [_row("a", 1, 0.0)])
    assert world.streams.results().column("n").to_pylist() == [1, 1]


def test_a_recovery_can_be_tried_out_without_the_function(tmp_path: Path) -> None:
    world = World(definition(means), tmp_path, on_disk=True)
    for second in range(3):
        world.streams.append([_row("a", second, 1.0)])
        world.streams.drain(cec())
    found = audit(world.streams.output, intake_of)
    assert (found.open_windows, found.replayed, found.problems) == (1, None, ())


def test_kernels_are_warmed_up_with_a_function_of_ours() -> None:
    inputs = (input_spec(["s"]),)
    live_in_small(definition(means), inputs)
    assert Kernels(definition(means), inputs)._purpose == Kernels(definition(counting_strings), inputs)._purpose


@keyed(state="n long", output="n long")
def counting_strings(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    out.n = state.n
    return EMIT


def test_a_definition_travels_with_its_function() -> None:
    d = definition(means)
    there = cloudpickle.loads(cloudpickle.dumps(d))
    assert there == d
    assert there.function.main.text == d.function.main.text
    rows = [_row("a", second, 1.0) for second in range(3)]
    assert uninterrupted(there, rows, 99) == uninterrupted(d, rows, 99)
