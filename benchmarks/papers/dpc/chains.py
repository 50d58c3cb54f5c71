"""Figure 11: a failure of 15 s at the input of a chain of one to four nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.input_failures import BEFORE_S, COMBINATIONS, Contender
from benchmarks.papers.dpc.failing import MARGIN_S, SETTING, brief, failures, line, rows, steps_table
from benchmarks.papers.figure import Claim, Data, Experiment, Figure, Panel, Size

_TUPLES_PER_S = 3_000
_PROCESS, _DELAY, _SUSPEND = "Process & Process", "Delay & Delay", "Process & Suspend"
_SHARED = "Process & Process, 0.1 X behind the first node"
_MODES = {_PROCESS: COMBINATIONS[0], _DELAY: COMBINATIONS[3], _SUSPEND: COMBINATIONS[4]}
_BEHIND = 0.1
_SIZES: dict[Size, tuple[float, float, int]] = {"tiny": (0.3, 0.8, 2), "small": (3.0, 15.0, 4), "full": (3.0, 15.0, 4)}
"""The bound of a node and the failure in seconds, and the length of the chain."""


def measure(size: Size, folder: Path) -> Data:
    """Measures the longest chain of each combination; its nodes are the ends of the shorter ones."""
    bound_s, failure_s, depth = _SIZES[size]
    contenders = {
        **{name: Contender(bound_s, *modes, depth=depth) for name, modes in _MODES.items()},
        _SHARED: Contender(bound_s, *COMBINATIONS[0], depth=depth, behind=_BEHIND),
    }
    before_s, at_once = (0.4, len(contenders)) if size == "tiny" else (BEFORE_S, 2)
    run = [(failure_s, list(contenders.values()))]
    todo = failures(folder, _TUPLES_PER_S, run, sensors=25, at_once=at_once, before_s=before_s)
    names = [name for name in contenders for _ in range(depth)]
    measured = rows(todo, beside=size != "tiny")
    found = [brief(row, name=name) for name, row in zip(names, measured, strict=True)]
    return {"rows": found, "bound_s": bound_s}


def _panels(data: Data) -> list[Panel]:
    def lines(field: str) -> dict[str, list[tuple[float, float]]]:
        return {name: line(data["rows"], "depth", field, name=name) for name in (*_MODES, _SHARED)}

    x = "nodes in the chain"
    return [
        Panel(
            "how long new tuples wait at most",
            x,
            "seconds",
            ours=lines("delay_new_max_s"),
            limit=("X", data["bound_s"]),
        ),
        Panel("tentative tuples that the client receives", x, "tuples", ours=lines("tentative")),
    ]


# ---------------------------------------------------------------------- claims


def _delays(data: Data, name: str) -> dict[float, float]:
    return dict(line(data["rows"], "depth", "delay_new_max_s", name=name))


def _tentative(data: Data, name: str) -> list[float]:
    return [value for _, value in line(data["rows"], "depth", "tentative", name=name)]


def _waits_once(data: Data) -> bool:
    """Returns whether new tuples wait for X and two looks a node, however many nodes there are."""
    return all(delay <= data["bound_s"] + MARGIN_S * k for k, delay in _delays(data, _PROCESS).items())


def _is_within(data: Data, name: str) -> bool:
    """Returns whether new tuples wait for no longer than k bounds and two looks a node."""
    return all(delay <= (data["bound_s"] + MARGIN_S) * k for k, delay in _delays(data, name).items())


def _grows_by_bound(data: Data) -> bool:
    """Returns whether each node adds between half of X and one and a half of it."""
    found = _delays(data, _DELAY)
    added = [found[k + 1] - found[k] for k in found if k + 1 in found]
    return bool(added) and all(0.5 * data["bound_s"] <= one <= 1.5 * data["bound_s"] for one in added)


def _suspending_is_late(data: Data) -> bool:
    """Returns whether Process & Suspend lets tuples wait longer than k bounds, from two nodes on."""
    return all(delay > (data["bound_s"] + MARGIN_S) * k for k, delay in _delays(data, _SUSPEND).items() if k > 1)


def _guesses_more(data: Data) -> bool:
    """Returns whether a client behind all nodes receives at least 5 % more than behind the first."""
    found = _tentative(data, _PROCESS)
    return found[-1] >= 1.05 * found[0] > 0


def _delaying_is_no_use(data: Data) -> bool:
    """Returns whether Delay & Delay saves less than 5 % behind the last node."""
    return _tentative(data, _DELAY)[-1] >= 0.95 * _tentative(data, _PROCESS)[-1] > 0


def _told(
    delay_of: Callable[[str, int], float] | None = None, tentative_of: Callable[[str, int], float] | None = None
) -> dict[str, Any]:
    """Returns rows as the paper's text describes them, or other delays and numbers in their place."""
    told_delay = {
        _PROCESS: lambda k: 3 + 0.1 * k,
        _DELAY: lambda k: 3.0 * k,
        _SUSPEND: lambda k: 5.0 * k + k * k,
        _SHARED: lambda k: 3 + 0.3 * k,
    }
    told_tentative = {_PROCESS: 1.2, _DELAY: 1.3, _SUSPEND: 1.0, _SHARED: 1.2}
    return {
        "rows": [
            {
                "name": name,
                "depth": k,
                "delay_new_max_s": (delay_of or (lambda n, j: told_delay[n](j)))(name, k),
                "tentative": (tentative_of or (lambda n, j: 30_000 * told_tentative[n] ** j))(name, k),
            }
            for name in told_delay
            for k in (1, 2, 3, 4)
        ],
        "bound_s": 3.0,
    }


FIGURE = Figure(
    "dpc-fig11",
    "Figure 11: chains of nodes",
    "a failure of 15 s at the input of a chain of one to four nodes with X = 3 s each; joins with a state of 50 "
    "tuples. Once the failure heals, the nodes correct their results one after the other.",
    "with Process & Process the delay is X and the normal processing, whatever the length; Delay & Delay adds X a "
    "node; both stay within kX. Process & Suspend does not. With Process & Process tentative tuples grow with the "
    "length, because nodes make them while they wait for the corrections of the node before; Delay & Delay is no use, "
    "and can hurt.",
    SETTING + " Nodes behind the first have a single input, the results of the node before, and a state of one tuple "
    "a sensor. 3,000 tuples/s, 25 sensors: the join has a state of 50 tuples. Each node has a bound of X = 3 s. The "
    "fourth line has a bound of 0.1 X in the nodes behind the first. The nodes share two cores here; the paper had a "
    "machine for each pair of replicas.",
    _panels,
    (
        Claim(
            "With Process & Process the longest delay is X and the normal processing, whatever the length of the chain",
            _waits_once,
            refuted_by=_told(lambda _, k: 3.0 * k),
            shown_by=_told(),
            why_not="A node with a single input waits for its own bound before it goes on with tentative tuples: a "
            "failure that ends before k bounds leaves the client behind k nodes no tentative tuple. The delay stays "
            "within kX. With a small bound behind the first node it is that of the first node (the fourth line).",
        ),
        Claim(
            "Delay & Delay adds X for each node",
            _grows_by_bound,
            refuted_by=_told(lambda _, k: 3.0 + 0.1 * k),
            shown_by=_told(),
        ),
        Claim(
            "Process & Process and Delay & Delay keep the delay within kX",
            lambda data: _is_within(data, _PROCESS) and _is_within(data, _DELAY),
            refuted_by=_told(lambda _, k: 5.0 * k),
            shown_by=_told(),
        ),
        Claim(
            "Process & Suspend does not keep the delay within kX: the corrections of all nodes add up",
            _suspending_is_late,
            refuted_by=_told(lambda _, k: 3.0 * k),
            shown_by=_told(),
            surpassed=lambda data: _is_within(data, _SUSPEND),
            why_not="A node corrects 15 s in a fraction of a second, so the corrections of all nodes add up to little.",
        ),
        Claim(
            "With Process & Process the number of tentative tuples grows with the length of the chain",
            _guesses_more,
            refuted_by=_told(tentative_of=lambda _, __: 30_000),
            shown_by=_told(),
            surpassed=lambda data: max(_tentative(data, _PROCESS)) <= 1.05 * _tentative(data, _PROCESS)[0],
            why_not="The nodes correct within a fraction of a second of each other, so none makes tentative tuples "
            "while it waits for the node before.",
        ),
        Claim(
            "Delay & Delay makes no fewer tentative tuples than Process & Process behind the last node",
            _delaying_is_no_use,
            refuted_by=_told(tentative_of=lambda name, _: 30_000 - 20_000 * (name == _DELAY)),
            shown_by=_told(),
            surpassed=lambda data: _tentative(data, _DELAY)[-1] < 0.95 * _tentative(data, _PROCESS)[-1],
            why_not="The paper's node catches up, and makes tentative tuples, while it waits for the corrections of "
            "the node before. Here these come at once, so that the tuples of the bound are saved.",
        ),
    ),
    table=lambda data: steps_table(data["rows"]),
)

EXPERIMENT = Experiment("dpc-chains", "dpc", measure, (FIGURE,))
