"""Every experiment of `strandline papers` runs at its smallest size, and its figures can be drawn and judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.papers.catalogue import experiments
from benchmarks.papers.figure import Verdict
from benchmarks.papers.run import run_all


@pytest.mark.long
@pytest.mark.drawn("papers")
@pytest.mark.parametrize("name", [experiment.name for experiment in experiments()])
def test_an_experiment_finds_what_its_figures_show(name: str, tmp_path: Path) -> None:
    (asked,) = (experiment for experiment in experiments() if experiment.name == name)
    problems: list[str] = []
    run_all([asked], "tiny", tmp_path, lambda *_: None, lambda *ended: problems.append(ended[3]))
    assert problems == [""]
    figures = json.loads((tmp_path / "results.json").read_text())["figures"]
    assert set(figures) == {figure.name for figure in asked.figures}
    assert Verdict.FAILED not in {figure["verdict"] for figure in figures.values()}
    page = (tmp_path / f"{asked.paper}.html").read_text()
    assert all(f"id='{figure.name}'" in page for figure in asked.figures)
