"""The fold of the manifests, and every way in which a manifest may not follow."""

from dataclasses import replace
from typing import Any

import pytest

from strandline.errors import CorruptManifestError
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import KINDS
from strandline.log.stream.log_state import LogState


def block(first: int, end: int, partition: int = 0, time: int = 100, rows: int | None = None) -> Block:
    many = end - first if rows is None else rows
    return Block(partition, "file", first, end, {"result": many}, time, time, 1, "x")


def manifest(kind: str, **fields: Any) -> Commit:
    return KINDS[kind](**({"seq": 0, "stream": "s", "published_us": 7} | fields))


def append(**fields: Any) -> Commit:
    usual = {"blocks": (block(0, 2),), "ends": (2, 0, 0), "boundaries": (90, 90), "time_max": 100}
    return manifest("append", **(usual | fields))


EMPTY = LogState.empty(2)
FILLED = EMPTY.apply(append())


def test_commits_add_up() -> None:
    assert (FILLED.ends, FILLED.boundary, FILLED.time_max, FILLED.published_us) == ((2, 0, 0), 90, 100, 7)
    state = FILLED.apply(manifest("truncate", seq=1, starts=(2, 0, 0)))
    assert (state.starts, state.ends) == ((2, 0, 0), (2, 0, 0))
    state = state.apply(manifest("collect", seq=2, files=("a",)))
    state = state.apply(manifest("collect", seq=3, files=("b",)))
    assert state.announced == (2, 3)
    state = state.apply(manifest("collect", seq=4, deleted_through=2))
    assert state.announced == (3,)
    state = state.apply(manifest("consumer", seq=5, consumer="c", needs=(2, 0)))
    state = state.apply(manifest("consumer", seq=6, consumer="c", needs=(3, 0)))
    assert [(c.name, c.needs, c.seq) for c in state.consumers] == [("c", (3, 0), 6)]
    assert state.apply(manifest("consumer", seq=7, consumer="c", needs=None)).consumers == ()


def test_what_is_dropped_stays_dropped() -> None:
    state = FILLED.apply(manifest("truncate", seq=1, starts=(2, 0, 0)))
    assert state.apply(manifest("truncate", seq=2, starts=(0, 0, 0))).starts == (2, 0, 0)


def test_a_boundary_is_known_when_it_is_known_in_every_partition() -> None:
    assert EMPTY.boundary is None
    assert replace(FILLED, boundaries=(5, None)).boundary is None
    assert replace(FILLED, boundaries=(5, 4)).boundary == 4


TRUNCATED = FILLED.apply(manifest("truncate", seq=1, starts=(2, 0, 0)))


@pytest.mark.parametrize(
    ("state", "m", "says"),
    [
        (EMPTY, append(seq=1), "the sequence has a gap"),
        (FILLED, append(seq=0), "the sequence has a gap"),
        (EMPTY, append(ends=(2, 0)), "1 partition, not 2"),
        (EMPTY, append(blocks=(block(0, 2), block(0, 2))), "partition 0 are not dense: they stood at 2"),
        (EMPTY, append(blocks=(block(0, 2, partition=3),)), "there is no partition 3"),
        (EMPTY, append(blocks=(block(1, 2),)), "partition 0 are not dense: they stood at 0"),
        (EMPTY, append(ends=(3, 0, 0)), "not dense"),
        (EMPTY, append(ends=(2, 1, 0)), "partition 1 are not dense"),
        (FILLED, append(seq=1, blocks=(), ends=(1, 0, 0)), "not dense"),
        (EMPTY, append(blocks=(block(0, 2, rows=1),)), "counts 1 row for 2 offsets"),
        (FILLED, append(seq=1, blocks=(), boundaries=(89, 90)), "partition 0 went back from 90 to 89"),
        (FILLED, append(seq=1, blocks=(), boundaries=(90, None)), "partition 1 went back from 90 to None"),
        (FILLED, append(seq=1, blocks=(block(2, 3, time=89),), ends=(3, 0, 0)), "at 89, before the boundary 90"),
        (FILLED, append(seq=1, blocks=(), time_max=99), "the largest time went back"),
        (FILLED, append(seq=1, blocks=(), time_max=None), "the largest time went back"),
        (FILLED, manifest("truncate", seq=1, starts=(3, 0, 0)), "drops tuples that were never there"),
        (FILLED, manifest("truncate", seq=1, starts=(0, 0)), "drops tuples that were never there"),
        (FILLED, manifest("compact", seq=1, blocks=(block(0, 3),)), "0-3 lies outside of partition 0"),
        (TRUNCATED, manifest("compact", seq=2, blocks=(block(0, 2),)), "0-2 lies outside of partition 0"),
        (FILLED, manifest("consumer", seq=1, consumer="c", needs=(0,)), "1 offset for 2 partitions"),
        (TRUNCATED, manifest("consumer", seq=2, consumer="c", needs=(1, 0)), "'c' needs tuples that were dropped"),
    ],
)
def test_a_manifest_that_cannot_follow_is_refused_and_says_why(state: LogState, m: Commit, says: str) -> None:
    with pytest.raises(CorruptManifestError) as refused:
        state.apply(m)
    assert says in refused.value.what
    assert "verify" in refused.value.todo


def test_late_tuples_may_have_any_time() -> None:
    late = append(seq=1, blocks=(block(0, 1, partition=2, time=-5),), ends=(2, 0, 1))
    assert FILLED.apply(late).ends == (2, 0, 1)
