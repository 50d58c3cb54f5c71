"""The operators of the DPC paper's figures are those that a program gets from `sl.union` and `join`."""

from __future__ import annotations

from pathlib import Path

import strandline as sl
from benchmarks.links import borealis_nodes, last_of_sensor, union_of_two


def test_the_first_node_is_a_union_that_feeds_a_join(tmp_path: Path) -> None:
    fields = "sensor long, time timestamp, number long, value double"
    a, b, c = (sl.testing.stream(fields, key="sensor", time="time", lateness="0 s", partitions=1) for _ in range(3))
    union = sl.union(a, b).availability(bound="300 ms")
    join = union.into(str(tmp_path)).join(c, left=sl.count_window(1), right=sl.count_window(1))
    assert union._definition == union_of_two()
    assert join._definition == last_of_sensor()


def test_nodes_behind_the_first_have_a_single_input() -> None:
    union, join, *behind = borealis_nodes(4)
    assert (union.streams, join.streams) == ((0, 1), (2,))
    assert union.share + join.share == 1
    assert [link.is_end for link in (union, join, *behind)] == [False, True, True, True, True]
    assert not any(link.streams for link in behind)
