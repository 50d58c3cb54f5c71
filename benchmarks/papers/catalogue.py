"""All experiments and figures, in the order of the papers."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks.papers.figure import Experiment, Figure
from strandline.errors import OptionError


@dataclass(frozen=True)
class Paper:
    """One of the four papers."""

    name: str
    title: str
    experiments: Sequence[str]
    """Modules of its package, each with an `EXPERIMENT`."""


PAPERS = (
    Paper(
        "cec",
        "Sebepou and Magoutis: CEC, continuous eventual checkpointing for data stream processing operators (DSN 2011)",
        ("baseline", "recovery_targets", "checkpoint_period", "instant_pause"),
    ),
    Paper(
        "thesis",
        "Sebepou: Persistence and continuous eventual checkpointing of data streams (thesis)",
        ("batching", "storage", "writers", "chained", "killed", "regimes", "intensity"),
    ),
    Paper(
        "spade",
        "Jacques-Silva, Gedik, Andrade, Wu: language-level checkpointing in SPADE (DSN 2009)",
        ("windows", "yield_model", "checkpoints", "groups"),
    ),
    Paper(
        "dpc",
        "Balazinska, Balakrishnan, Madden, Stonebraker: fault-tolerance in the Borealis distributed stream processing "
        "system (SIGMOD 2005)",
        ("bounds", "combinations", "chains", "reconciling", "boundaries"),
    ),
)


@cache
def experiments() -> tuple[Experiment, ...]:
    """Returns all experiments, those of one paper beside each other."""
    return tuple(
        importlib.import_module(f"benchmarks.papers.{paper.name}.{module}").EXPERIMENT
        for paper in PAPERS
        for module in paper.experiments
    )


def figures() -> tuple[tuple[Experiment, Figure], ...]:
    """Returns all figures with their experiments."""
    return tuple((experiment, figure) for experiment in experiments() for figure in experiment.figures)


def chosen(names: Iterable[str]) -> tuple[Experiment, ...]:
    """Returns the experiments of papers, figures or experiments with these names; all without a name.

    Raises `OptionError` if there is nothing with such a name.
    """
    asked = list(names)
    found = set[str]()
    for name in asked:
        own = {
            experiment.name
            for experiment, figure in figures()
            if name in (experiment.paper, experiment.name, figure.name)
        }
        if not own:
            known = ", ".join([paper.name for paper in PAPERS] + [figure.name for _, figure in figures()])
            raise OptionError(f"no paper and no figure is called {name!r}", todo=f"choose some of {known}")
        found |= own
    return tuple(experiment for experiment in experiments() if not asked or experiment.name in found)
