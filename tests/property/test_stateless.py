"""Stateless operators and their specification agree, and the stream is the same however its input is cut or lost."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.control_columns import OFFSET
from tests.simulation.simulated_operators import serialised
from tests.simulation.simulated_stateless import some_stateless
from tests.support.operator_streams import COLUMNS, Row, Tuples, bits, rows_table


@pytest.mark.parametrize("seed", range(40))
def test_an_operator_gives_what_its_specification_gives_however_its_input_is_cut(seed: int) -> None:
    rng = Random(seed)
    simulated = some_stateless(rng)
    rows = [Tuples(rng, big=0.2).rows(rng.randint(1, 120)) for _ in range(simulated.inputs)]
    placed = serialised(rows, 1 << 40)
    expected = simulated.expected(placed, None)
    operator, names = simulated.definition.fresh("set_aside"), simulated.definition.output_schema.names
    found, aside, at = [simulated.definition.output_schema.empty_table()], [], 0
    while at < len(placed):
        operator.begin()
        piece = placed[at : at + rng.choice([1, 3, 20, 200])]
        at += len(piece)
        for columns in operator.feed([_table(piece, n) for n in range(simulated.inputs)]):
            found.append(pa.table(columns, names=names))
        operator.input_end = at
        aside += [row for tables in operator.aside.tables.values() for table in tables for row in table.to_pylist()]
        assert operator.extent(0).oldest_input == at
        if rng.random() < 0.3:  # a loss: another one has only the place
            operator = simulated.definition.fresh("set_aside")
            operator.input_end = at
    assert bits(pa.concat_tables(found)).equals(expected.results)
    assert sorted(map(repr, aside)) == sorted(map(repr, _in_order(expected.aside, aside)))


def _table(piece: list[tuple[int, Row]], number: int) -> pa.Table:
    own = [row for of, row in piece if of == number]
    places = pa.array([row[OFFSET] for row in own], pa.int64())
    return rows_table(own).drop_columns([OFFSET]).append_column(OFFSET, places)


def _in_order(expected: list[Row], found: list[Row]) -> list[Row]:
    return [{name: row[name] for name in found[0]} for row in expected] if found else expected


@pytest.mark.parametrize("seed", range(15))
def test_the_stream_is_the_same_to_the_offset_whatever_dies(seed: int) -> None:
    rng = Random(seed)
    feeds = [_feed() for _ in range(rng.choice([1, 2, 3]))]
    work: Any = sl.union(*feeds) if len(feeds) > 1 else feeds[0]
    shaped = work.where(pc.field("x") > -0.5).select("k", "t", "s", y=pc.field("v") * 2)
    restless = sl.testing.run(shaped, max_tuples_per_batch=rng.choice([1, 7, 1000]))
    tuples = [Tuples(rng) for _ in feeds]
    for _ in range(30):
        number = rng.randrange(len(feeds))
        feeds[number].add([tuple(row[c] for c in COLUMNS) for row in tuples[number].rows(rng.randint(0, 9))])
        if rng.random() < 0.4:
            restless.crash()
        if rng.random() < 0.6:
            restless.step()
    for feed in feeds:
        feed.finish()
    restless.step()
    calm = sl.testing.run(shaped)
    calm.step()
    for partition in range(2):
        ours, theirs = (_stored(run, partition) for run in (restless, calm))
        assert ours.equals(theirs)
        assert len(ours) > 0
    assert restless.input_log.state.boundaries == calm.input_log.state.boundaries
    assert restless.recoveries == calm.recoveries == 0


def _feed() -> Any:
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    return sl.testing.stream(schema, key="k", time="t", lateness=8, partitions=2)


def _stored(run: Any, partition: int) -> pa.Table:
    """Everything in a partition: tuples of all kinds, each with its offset."""
    tables = list(run.input_log.read(partition, 0))
    return pa.concat_tables(tables).combine_chunks()
