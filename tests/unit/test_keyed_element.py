"""Keyed operators between two logs: steps, lost machines, other policies, other functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

import strandline as sl
from strandline.checkpoint.policy import Policy, cec, instant, none
from strandline.errors import CorruptionError, InputError, StreamMismatchError
from strandline.inputs.stream_definition import definition_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.operators.keyed.definition import KeyedDefinition, shared_program
from strandline.operators.keyed.keyed_function import keyed
from strandline.operators.keyed.record_layout import EMIT
from strandline.operators.one_table import GivenInput
from strandline.recovery.checkpoint_audit import audit
from strandline.recovery.window_report import current_windows, saved_windows
from strandline.running.kernel_warm_up import Kernels, live_in_small
from strandline.running.state.state_cache import StateCache
from tests.support.keyed_programs import scores
from tests.support.operator_streams import (
    COLUMNS,
    LATENESS,
    Row,
    Streams,
    input_spec,
    output_spec,
    rows_table,
    uninterrupted,
)

RARELY = cec(extent=1_000)
"""Keys have the footprint with which they opened."""


@keyed(state="n long", output="n long", expire=1_000)
def count(state: Any, row: Any, out: Any) -> int:
    """What kernels are warmed up with, so that it is compiled once for both."""
    state.n += 1
    out.n = state.n
    return EMIT


def definition(function: Any, key: str = "k") -> KeyedDefinition:
    return KeyedDefinition.of(function, GivenInput(COLUMNS, (key,), "t", LATENESS))


class World:
    """Streams whose machine can be lost."""

    def __init__(self, d: KeyedDefinition, folder: Path, *, on_disk: bool = False, partitions: int = 1) -> None:
        self._folder = folder
        self._machine = 0
        storages = (LocalStorage(folder / "input"), LocalStorage(folder / "output")) if on_disk else None
        self.streams = Streams(d, self._cache, partitions, storages=storages, on_error="set_aside")  # type: ignore[arg-type]

    def _cache(self, partition: int) -> StateCache:
        return StateCache(self._folder / f"machine-{self._machine}-{partition}")

    def lose_the_machine(self) -> None:
        self._machine += 1


def _row(key: int, time: int) -> Row:
    return {"k": key, "s": "", "v": 0, "x": 0.0, "t": time}


def test_open_windows_are_told_with_their_state(tmp_path: Path) -> None:
    world = World(definition(count), tmp_path, on_disk=True)
    world.streams.append([_row(1, 0), _row(2, 1), _row(1, 2)])
    world.streams.drain(cec())
    found = saved_windows(world.streams.output).to_pylist()
    assert [(r["k"], r["_state_n"], r["_rows"]) for r in found] == [(1, 2, 2), (2, 1, 1)]
    assert current_windows(world.streams.output, (world.streams.input,)).num_rows == 2
    world.streams.append([_row(1, 3)])
    world.streams.drain(cec())
    with pytest.raises(InputError, match="does not have the function"):  # it would have to be called
        current_windows(world.streams.output, (world.streams.input,))


def test_stream_json_says_what_the_function_is() -> None:
    d = definition(scores)
    spec = output_spec(d)  # type: ignore[arg-type]
    known = definition_of(spec, "")
    assert known.to_json() == d.to_json()
    assert known == d
    assert known.text(is_timestamp=False) == (
        "keyed function: state n long, mean double, m2 double; output z double, n long; keys expire after 10"
    )


@keyed(state="n long", output="n long", expire=1_000, version=2)
def tens(state: Any, row: Any, out: Any) -> int:
    state.n += 10
    out.n = state.n
    return EMIT


def changed(function: Any, **options: Any) -> KeyedDefinition:
    """The same with other options."""
    return definition(replace(function, **options))


def continue_with(world: World, d: KeyedDefinition, policy: Policy, rows: Sequence[Row] | dict[int, list[Row]]) -> None:
    asked = replace(output_spec(d), partitions=world.streams.input.spec.partitions)  # type: ignore[arg-type]
    world.streams.output.spec.require_same(replace(asked, upstream=world.streams.output.spec.upstream), "output")
    world.streams.plan = d  # type: ignore[assignment]
    if rows:
        world.streams.append(rows)
    world.streams.drain(policy)


def test_a_changed_function_is_refused_unless_a_later_version_says_that_it_is_meant(tmp_path: Path) -> None:
    world = World(definition(count), tmp_path)
    continue_with(world, definition(count), cec(), [_row(1, 0)])
    spec = world.streams.output.spec
    with pytest.raises(StreamMismatchError, match=r"its function has 'state.n \+= 1' where") as refused:
        spec.require_same(output_spec(changed(tens, version=1)), "")
    assert "keyed(…, version=2)" in refused.value.todo
    spec.require_same(output_spec(definition(tens)), "")
    continue_with(world, definition(tens), cec(), [_row(1, 1)])
    world.streams.output = Log.open(world.streams.output.storage, world.streams.clock)
    with pytest.raises(
        StreamMismatchError, match="gone on with version 2 of its function, this program says version 1"
    ):
        world.streams.output.spec.require_same(output_spec(definition(count)), "")


def is_over(n: int) -> bool:
    return n > 9


@keyed(state="n long", output="name string", expire=1_000)
def named(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    out.name = "many" if is_over(state.n) else "few"
    return EMIT


def test_a_function_is_the_same_however_another_python_has_spelt_it() -> None:
    """Python 3.11 and 3.14 write the quotes of f-strings in one way, 3.12 and 3.13 in another."""
    asked = output_spec(definition(named))
    assert asked.operator is not None

    def stored(text: str) -> StreamSpec:
        return replace(asked, operator={**(asked.operator or {}), "function": text})

    ours = str(asked.operator["function"])
    theirs = ours.replace("'", '"').replace("n > 9", "(n > 9)")
    assert theirs != ours
    stored(theirs).require_same(asked, "")
    for old, new in (("many", "more"), ("> 9", "> 8"), ("; is_over: ", "; over: "), ("def is_over", "def over")):
        with pytest.raises(StreamMismatchError, match="its function has"):
            stored(theirs.replace(old, new)).require_same(asked, "")
    for unreadable in ("", "code 0123456789abcdef", "def _main(", "\0"):
        with pytest.raises(StreamMismatchError, match="its function has"):
            stored(unreadable).require_same(asked, "")


@pytest.mark.parametrize("policy", [cec(), instant("1 hour")])
def test_a_later_version_goes_on_with_the_state_and_is_recovered_as_it_was(policy: Policy, tmp_path: Path) -> None:
    world = World(definition(count), tmp_path)
    for second in range(3):
        continue_with(world, definition(count), policy, [_row(1, second)])
    continue_with(world, definition(tens), policy, [_row(1, 3)])
    world.lose_the_machine()  # tuples of the first version must not be replayed into the second
    continue_with(world, definition(tens), policy, [_row(1, 4)])
    world.lose_the_machine()
    continue_with(world, definition(tens), policy, [_row(1, 5)])
    assert world.streams.results().column("n").to_pylist() == [1, 2, 3, 13, 23, 33]


@pytest.mark.parametrize("policy", [RARELY, instant("1 hour")])
def test_what_an_earlier_version_took_in_is_not_replayed_into_a_later_one(policy: Policy, tmp_path: Path) -> None:
    world = World(definition(count), tmp_path)
    for second in range(3):
        continue_with(world, definition(count), policy, [_row(1, second)])
    world.lose_the_machine()
    with pytest.raises(StreamMismatchError, match="version 1 of the function") as refused:
        continue_with(world, definition(tens), policy, [_row(1, 3)])
    assert "sl.instant" in refused.value.todo
    world.streams.clock.sleep(1)
    continue_with(world, definition(count), instant("1 ms"), [])  # as it says; then every key is saved
    world.lose_the_machine()
    continue_with(world, definition(tens), policy, [_row(1, 4)])
    assert world.streams.results().column("n").to_pylist() == [1, 2, 3, 4, 14]


@pytest.mark.parametrize("policy", [RARELY, instant("1 hour")])
def test_a_whole_state_without_keys_tells_no_version(policy: Policy, tmp_path: Path) -> None:
    world = World(definition(count), tmp_path)
    continue_with(world, definition(count), policy, [_row(1, 0)])
    continue_with(world, definition(count), policy, [_row(2, 5_000)])
    world.streams.clock.sleep(1)
    continue_with(world, definition(count), instant("1 ms"), [_row(3, 99_000)])
    continue_with(world, definition(count), policy, [_row(3, 99_001)])
    world.lose_the_machine()
    with pytest.raises(StreamMismatchError, match="version 1 of the function"):
        continue_with(world, definition(tens), policy, [_row(3, 99_002)])


def test_a_partition_to_which_nothing_came_goes_over_to_the_later_version_with_the_others(tmp_path: Path) -> None:
    world = World(definition(count), tmp_path, partitions=2)
    for second in range(3):
        continue_with(world, definition(count), RARELY, {0: [_row(2, second)], 1: [_row(1, second)]})
    continue_with(world, definition(tens), RARELY, {0: [_row(2, 3)]})
    world.lose_the_machine()
    continue_with(world, definition(tens), RARELY, {0: [_row(2, 4)], 1: [_row(1, 4)]})
    assert world.streams.results(0).column("n").to_pylist() == [1, 2, 3, 13, 23]
    assert world.streams.results(1).column("n").to_pylist() == [1, 2, 3, 13]


def test_an_older_checkpoint_of_an_earlier_version_does_not_take_the_place_of_a_rotten_one(tmp_path: Path) -> None:
    world = World(definition(count), tmp_path, on_disk=True)
    for second in range(3):
        continue_with(world, definition(count), RARELY, [_row(1, second)])
    continue_with(world, definition(tens), RARELY, [_row(1, 3)])
    newest = max((tmp_path / "output" / "blocks" / "p00000").iterdir())
    newest.write_bytes(newest.read_bytes()[:-9] + bytes(9))
    world.lose_the_machine()
    with pytest.raises(CorruptionError):
        continue_with(world, definition(tens), RARELY, [_row(1, 4)])


@pytest.mark.parametrize("version", [1, 2])
def test_without_checkpoints_a_later_version_begins_anew_where_the_state_is_lost(version: int, tmp_path: Path) -> None:
    world = World(definition(count), tmp_path)
    continue_with(world, definition(count), none(), [_row(1, 0)])
    if version == 2:
        world.lose_the_machine()
    continue_with(world, definition(tens), none(), [_row(1, 1)])
    assert world.streams.results().column("n").to_pylist() == [1, 10 if version == 2 else 11]


def test_without_checkpoints_a_lost_machine_forgets_its_keys(tmp_path: Path) -> None:
    world = World(definition(count), tmp_path)
    continue_with(world, definition(count), none(), [_row(1, 0)])
    world.lose_the_machine()
    continue_with(world, definition(count), none(), [_row(1, 1)])
    assert world.streams.results().column("n").to_pylist() == [1, 1]


def test_a_recovery_can_be_tried_out_without_the_function(tmp_path: Path) -> None:
    world = World(definition(count), tmp_path, on_disk=True)
    for second in range(3):
        world.streams.append([_row(1, second)])
        world.streams.drain(cec())
    found = audit(world.streams.output)
    assert (found.open_windows, found.replayed, found.problems) == (1, None, ())


def test_kernels_are_warmed_up_with_a_function_of_ours() -> None:
    inputs = (input_spec(["k"]),)
    live_in_small(definition(scores), inputs)
    assert Kernels(definition(scores), inputs)._purpose == Kernels(definition(count), inputs)._purpose


def test_a_definition_travels_with_its_function() -> None:
    d = definition(count)
    there = cloudpickle.loads(cloudpickle.dumps(d))
    assert there == d
    assert there.function.main.text == d.function.main.text
    rows = [_row(1, second) for second in range(3)]
    assert uninterrupted(there, rows, 99) == uninterrupted(d, rows, 99)


def farewell(state: Any, out: Any) -> int:
    out[0].word = "gone"
    return EMIT


@keyed(state="n long", output="word string", expire=1_000, on_expire=farewell, emit=2)
def greeting(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    out[0].word = "first" if state.n == 1 else "again"
    return EMIT


@keyed(state="n long", output="n long")
def spelled(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    out.n = 1 if row.s == "ä" else 0
    return EMIT


@pytest.mark.parametrize("function", [greeting, spelled])
def test_a_function_knows_its_texts_in_the_first_step_of_a_process(function: Any) -> None:
    """A worker gets the function uncompiled: its texts are found when it is compiled."""
    d = definition(function)
    rows = [{**_row(1, second), "s": text} for second, text in enumerate(["ä", "a", "ä"])]
    rows.append(_row(2, 5_000))
    expected = uninterrupted(d, rows, 9_999)
    shared_program.cache_clear()  # as in a process that has just begun
    there = cloudpickle.loads(cloudpickle.dumps(d))
    assert uninterrupted(there, rows, 9_999) == expected


def test_keys_expire_without_the_function_if_it_is_not_called_for_that() -> None:
    """A program that only shows the open windows of a stream does not have its function."""
    known = definition(count)
    stated = KeyedDefinition.from_json(known.to_json(), {"k": "long"}, [("t", "long")])
    operator = known.fresh()
    operator.begin()
    list(operator.feed([rows_table([_row(1, 0)])]))
    elsewhere = stated.revived(operator.image().arrays)
    assert not stated.can_compute
    elsewhere.begin()
    elsewhere.advance(9_999)
    assert elsewhere.open_windows == 0


@keyed(state="n long", output="n long")
def numbered(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    out.n = state.n
    return EMIT


def test_results_are_complete_as_far_as_the_input_also_if_no_key_expires() -> None:
    feed = sl.testing.stream("k long, t long, v long", key="k", time="t", lateness=0, partitions=1)
    run = sl.testing.run(feed.apply(numbered))
    feed.add([(1, 1, 1), (1, 5, 1)])
    run.step()
    assert run.input_log.state.boundaries == (5,)
    windows = sl.testing.run(run.window(sl.time_window(2)).aggregate(n=sl.count_all()))
    assert windows.step().column("n").to_pylist() == [1], "the window before the boundary closes"
