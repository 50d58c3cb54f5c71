"""Seeded runs of operators whose policies lose something, and have it on record; see `lossy_world`.

A failure names its seed: `python -m pytest tests/simulation/test_lossy_simulation.py --seed N` runs that one again.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import pytest

from strandline.log.loss import Loss
from strandline.operators.operator import Saved
from strandline.recovery import without_replay
from strandline.recovery.recover import Recovery
from tests.simulation.operator_runs import run_all, run_here
from tests.simulation.seeds import parametrize

SEEDS = (9, 209, 12_000)
FEW = 9


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS, a_test=300)


def test_results_are_those_of_the_specification_without_what_is_on_record(seeds: range, workers: Executor) -> None:
    if len(seeds) <= FEW:
        run_here(seeds, "lossy")
    else:
        run_all(seeds, "lossy", workers)


def _closings_are_overlooked(salvage: Any) -> Iterator[Saved]:
    for saved in NEWEST_FIRST(salvage):
        yield Saved(saved.closed.slice(0, 0), saved.footprints)


def _from_one_later(*given: Any) -> Iterator[Loss]:
    return (replace(loss, first=loss.first + 1) if loss.tuples else loss for loss in LOSSES(*given))


NEWEST_FIRST, LOSSES = without_replay._Salvage._newest_first, without_replay._losses
DEFECTS = {
    "windows that have closed go on": (without_replay._Salvage, "_newest_first", _closings_are_overlooked),
    "state is not saved anew": (Recovery, "is_other", property(lambda recovery: recovery.is_older)),
    "time does not pass": (without_replay, "_pass_time", lambda *_given, **_options: None),
    "the record is one tuple short": (without_replay, "_losses", _from_one_later),
}


@pytest.mark.long
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    with pytest.raises(AssertionError, match="seed"):
        run_here(range(40), "lossy")
