"""Every kind of operator and every option with a bound, side by side in one Spark, through one failure.

The south stays away: those that have anything to say without it guess, the others say that they are blocked. When it is
back, all have the results that they would have had.
"""

from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from tests.support.available_case import Numbered
from tests.support.operator_streams import bits, published_results
from tests.support.sensors import PARTITIONS, Sensors, counted

BLOCKED = ("inner", "barrier")
SILENT = ("barrier", "suspend")
OPTIONS: dict[str, dict[str, Any]] = {
    "suspend": {"failing": "suspend"},
    "delay": {"failing": "delay"},
    "undo": {"reconcile": "undo"},
    "full": {"failing": "delay", "stabilizing": "process", "reconcile": "undo"},
    "keyed": {"reconcile": "undo"},
}


@sl.keyed(state="n long, last long", output="n long, step long")
def steps(state: Any, row: Any, out: Any) -> int:
    """How far a value is from the one before it."""
    state.n += 1
    out.n = state.n
    out.step = row.v - state.last
    state.last = row.v
    return sl.EMIT  # type: ignore[no-any-return]


def operators(paths: list[Path]) -> dict[str, Any]:
    north, south = (sl.stream(str(path)) for path in paths)
    return {
        "inner": north.join(south, within=3),
        "left": north.join(south, within=3, how="left"),
        "full": north.join(south, within=3, how="full"),
        "barrier": sl.barrier(a=north, b=south),
        "keyed": sl.union(north, south).apply(steps),
        "class": sl.union(north, south).apply(Numbered()),
        "suspend": counted(paths),
        "delay": counted(paths),
        "undo": counted(paths),
    }


@pytest.mark.long
def test_every_operator_goes_on_or_says_that_it_is_blocked_and_is_right_in_the_end(
    spark: Any, tmp_path: Path, eventually: Any
) -> None:
    sensors = Sensors(tmp_path, ("north", "south"))
    for number in range(2):
        sensors.write(number, 0, 25)
    queries = {}
    try:
        for name, operator in operators(sensors.paths).items():
            available = operator.availability("2 s", **OPTIONS.get(name, {}))
            queries[name] = available.start(spark, str(tmp_path / name), trigger="500 ms")
        eventually(lambda: all(query.progress.get("results") for query in queries.values()), 180)
        sensors.write(0, 25, 45)
        for name, query in queries.items():
            eventually(lambda: query.progress["state"] == "UP_FAILURE", 180)  # noqa: B023
            assert query.progress["missing"] == ["south"], name
            told = sl.stream(str(tmp_path / name)).describe().operator.outage  # type: ignore[union-attr]
            assert told is not None
            for outage in (told, query.progress):
                blocked = outage.get("blocked", "")
                assert ("blocked until south is back" in blocked) == (name in BLOCKED), name
            if name not in SILENT:
                eventually(lambda: query.progress["tentative"], 60)  # noqa: B023
            else:
                assert query.progress["tentative"] == 0, name
        assert queries["inner"].progress["tentative"] == 6 * PARTITIONS, "what it kept of the south has found its match"
        sensors.write(1, 25, 45)
        for query in queries.values():
            eventually(lambda: query.progress["state"] == "STABLE", 180)  # noqa: B023
    finally:
        for query in queries.values():
            query.stop()
    for name, operator in operators(sensors.paths).items():
        operator.start(spark, str(tmp_path / f"{name}-calm"), trigger="available-now").await_termination()
        found, calm = (Log.open(LocalStorage(tmp_path / one)) for one in (name, f"{name}-calm"))
        for p in range(PARTITIONS):
            expected = published_results(calm, p)
            assert bits(published_results(found, p)).equals(bits(expected)), name
            assert len(expected) >= 4
        assert (found.state.outage.tentative if found.state.outage else None) == 0
