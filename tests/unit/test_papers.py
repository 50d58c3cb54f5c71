"""`strandline papers`: claims that can fail, pages, and what is kept of a run that is interrupted or fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.papers import catalogue, run
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size, Verdict
from strandline.cli.app import app

CLAIMS = [
    pytest.param(claim, id=f"{figure.name}: {claim.text}"[:70])
    for _, figure in catalogue.figures()
    for claim in figure.claims
]


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_holds_of_what_shows_it_and_fails_on_what_refutes_it(claim: Claim) -> None:
    assert claim.verdict(claim.shown_by) is Verdict.AGREES
    assert not claim.holds(claim.refuted_by)


def test_every_figure_has_a_claim_and_a_name_of_its_own() -> None:
    names = [figure.name for _, figure in catalogue.figures()]
    assert len(set(names)) == len(names)
    assert all(figure.claims for _, figure in catalogue.figures())
    assert all(figure.name.startswith(f"{experiment.paper}-") for experiment, figure in catalogue.figures())


GROWS = Claim(
    "grows",
    holds=lambda data: data["line"][-1] > data["line"][0],
    refuted_by={"line": [2, 1]},
    shown_by={"line": [1, 2]},
    surpassed=lambda data: data["line"][-1] == 0,
    why_not="because <of> this",
)


def _figure(name: str) -> Figure:
    return Figure(
        name,
        "A line & its <growth>",
        "a line",
        "it grows",
        "the same",
        lambda data: [
            Panel(
                "p",
                "x",
                "y",
                ours={"a": list(enumerate(data["line"]))},
                paper={"a": [(0, 100), (1, 200)]},
                own_axis=True,
            )
        ],
        [GROWS],
        table=lambda data: [("x", "y"), *((str(x), str(y)) for x, y in enumerate(data["line"]))],
    )


def _experiment(name: str) -> Experiment:
    def measure(size: Size, folder: Path) -> Data:
        raise AssertionError("the test says what was found")

    return Experiment(name, "cec", measure, [_figure(f"cec-{name}")])


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> list[Experiment]:
    """Two experiments in the place of all."""
    found = [_experiment("one"), _experiment("two")]
    for module in ("catalogue", "results", "pages"):
        monkeypatch.setattr(f"benchmarks.papers.{module}.experiments", lambda: tuple(found))
    return found


def _finds(monkeypatch: pytest.MonkeyPatch, **outcomes: Any) -> None:
    def in_a_process(experiment: Experiment, size: Size) -> tuple[Data | None, str]:
        outcome = outcomes[experiment.name]
        if isinstance(outcome, BaseException):
            raise outcome
        return (None, outcome) if isinstance(outcome, str) else ({"line": outcome}, "")

    monkeypatch.setattr(run, "_in_a_process", in_a_process)


@pytest.mark.parametrize(("line", "verdict"), [([1, 2], "agrees"), ([2, 1], "differs"), ([1, 0], "better")])
def test_the_pages_show_the_verdict_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: list[Experiment], line: list[int], verdict: str
) -> None:
    _finds(monkeypatch, one=line, two=[1, 2])
    done = CliRunner().invoke(app, ["papers", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output.splitlines()[-1])["verdicts"] == {"cec-one": verdict, "cec-two": "agrees"}
    page = (tmp_path / "cec.html").read_text()
    assert "A line &amp; its &lt;growth&gt;" in page
    assert ("because &lt;of&gt; this" in page) is (verdict != "agrees")
    assert "strandline papers cec-one" in page
    assert "cec.html#cec-one" in (tmp_path / "index.html").read_text()
    assert (tmp_path / "cec-one.svg").read_text().startswith("<svg")


def test_an_interruption_keeps_what_is_done_and_the_next_run_adds_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: list[Experiment]
) -> None:
    _finds(monkeypatch, one=[1, 2], two=KeyboardInterrupt())
    assert CliRunner().invoke(app, ["papers", "--out", str(tmp_path)]).exit_code == 130
    assert list(json.loads((tmp_path / "results.json").read_text())["figures"]) == ["cec-one"]
    _finds(monkeypatch, one=AssertionError("measured already"), two=[1, 2])
    assert CliRunner().invoke(app, ["papers", "cec-two", "--out", str(tmp_path)]).exit_code == 0
    assert list(json.loads((tmp_path / "results.json").read_text())["figures"]) == ["cec-one", "cec-two"]
    assert "cec-two.svg" in (tmp_path / "cec.html").read_text()


def test_a_failed_experiment_is_shown_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: list[Experiment]
) -> None:
    _finds(monkeypatch, one="no space <left>", two=[1, 2])
    done = CliRunner().invoke(app, ["papers", "--out", str(tmp_path)])
    assert done.exit_code == 1
    figures = json.loads((tmp_path / "results.json").read_text())["figures"]
    assert {name: figure["verdict"] for name, figure in figures.items()} == {"cec-one": "failed", "cec-two": "agrees"}
    assert "no space &lt;left&gt;" in (tmp_path / "cec.html").read_text()


def test_an_experiment_runs_in_a_process_and_its_last_words_are_kept(two: list[Experiment]) -> None:
    data, problem = run._in_a_process(two[0], "tiny")  # the catalogue of the process does not have it
    assert data is None
    assert "StopIteration" in problem


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["nothing"], "no paper and no figure is called 'nothing'"),
        (["--size", "huge"], "there is no size 'huge'"),
        (["--out", __file__], "the pages need a folder"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(arguments: list[str], what: str) -> None:
    done = CliRunner().invoke(app, ["papers", *arguments])
    assert done.exit_code == 1
    assert what in done.output
