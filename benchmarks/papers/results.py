"""The file `results.json` of a run: what each experiment has found, and how each figure compares with the paper's."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.papers.catalogue import experiments
from benchmarks.papers.figure import Data, Experiment, Figure, Size, Verdict
from strandline.version import VERSION

FILE = "results.json"


class Results:
    """What was found so far. A run adds to what an earlier run in the same folder has found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / FILE
        known = json.loads(self._file.read_text()) if self._file.exists() else {}
        self.experiments: dict[str, dict[str, Any]] = known.get("experiments", {})

    def add(self, experiment: Experiment, size: Size, seconds: float, data: Data | None, problem: str = "") -> None:
        """Notes the outcome of an experiment, and writes the file anew."""
        self.experiments[experiment.name] = {
            "size": size,
            "seconds": round(seconds, 1),
            "machine": machine(),
            **({"problem": problem} if data is None else {"data": data}),
        }
        self.write()

    def write(self) -> None:
        """Writes the file, whole or not at all."""
        known = {experiment.name for experiment in experiments()}
        self.experiments = {name: one for name, one in self.experiments.items() if name in known}
        found = {"experiments": self.experiments, "figures": self.figures()}
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(found, indent=1) + "\n")
        fresh.replace(self._file)

    def figures(self) -> dict[str, dict[str, Any]]:
        """Returns the verdict of each figure that was measured, with its claims."""
        found = {}
        for experiment in experiments():
            outcome = self.experiments.get(experiment.name)
            for figure in experiment.figures if outcome else ():
                assert outcome is not None
                found[figure.name] = {
                    "paper": experiment.paper,
                    "title": figure.title,
                    "verdict": verdict(figure, outcome),
                    "claims": [] if "data" not in outcome else claims(figure, outcome["data"]),
                    "command": command(figure, outcome["size"]),
                }
        return found


def verdict(figure: Figure, outcome: Mapping[str, Any]) -> Verdict:
    """Returns how a figure compares with the paper's, by what its experiment has found."""
    return figure.verdict(outcome["data"]) if "data" in outcome else Verdict.FAILED


def claims(figure: Figure, data: Data) -> list[dict[str, str]]:
    """Returns the claims of a figure with their verdicts, and why ours differ where they do."""
    found = []
    for claim in figure.claims:
        own = claim.verdict(data)
        why = claim.why_not if own is not Verdict.AGREES else ""
        found.append({"claim": claim.text, "verdict": own.value, **({"why": why} if why else {})})
    return found


def command(figure: Figure, size: str) -> str:
    """Returns the command that measures the figure again."""
    return f"strandline papers {figure.name}" + ("" if size == "small" else f" --size {size}")


def machine() -> dict[str, Any]:
    """Returns what measured: cores, memory, versions, and the commit of a checkout."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    asked = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(pages / 1e9),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "strandline": VERSION,
        **({"commit": asked.stdout.strip()} if asked.returncode == 0 else {}),
    }
