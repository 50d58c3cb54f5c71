"""How far each of several inputs of an operator has come, and which of them the others wait for.

Tuples are taken in up to the least of the inputs' boundaries, so one input that stands still holds up all the others.
Users who wonder why there are no results read its name here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from strandline.errors import StrandlineError
from strandline.log.operator_state.origin_logs import opened_origin
from strandline.log.operator_state.standing import Standing, marks_in
from strandline.log.operator_state.upstream import origins_of
from strandline.log.storage.redaction import redacted_url
from strandline.log.stream.log import Log
from strandline.log.stream.partition_view import PartitionView
from strandline.log.upkeep.consumer_registry import folder_name
from strandline.units import END_OF_TIME, first_of_all, time_text
from strandline.wording import plural


@dataclass(frozen=True, slots=True)
class InputLag:
    """One input, as of the last refresh of its log."""

    name: str
    """The name of its folder; its path, if two have the same."""
    path: str
    boundary: int | None
    """Up to this time it is complete, in every partition; None as long as that cannot be said of one."""
    behind: int | None
    """By how much the boundary lies before that of the input that has come furthest; None if there is no boundary."""
    waiting: int
    """Offsets that are published and not taken in yet, at most."""
    finished: bool
    problem: str | None = None
    """Why nothing of this is known: it cannot be read from here."""
    tentative: int = 0
    """Tuples behind the boundary that are only tentative: it waits itself, for an input of its own."""


def input_lags(inputs: Sequence[Log | InputLag], standings: Sequence[Standing]) -> list[InputLag]:
    """Returns how far these inputs have come where an operator stands; passes on those that could not be opened.

    An operator without standings has taken in nothing.
    """
    found = [one if isinstance(one, InputLag) else _lag(one, number, standings) for number, one in enumerate(inputs)]
    boundaries = [lag.boundary for lag in found if lag.boundary is not None and not lag.finished]
    names = [lag.name for lag in found]
    return [
        replace(
            lag,
            name=lag.name if names.count(lag.name) == 1 else lag.path,
            behind=None if lag.boundary is None else max([0, *(b - lag.boundary for b in boundaries)]),
        )
        for lag in found
    ]


def _lag(log: Log, number: int, standings: Sequence[Standing]) -> InputLag:
    state = log.state
    taken = [m.inputs[number].first for m in marks_in(standings)] or [s.input for s in standings]
    taken = taken or list(state.starts[: log.spec.partitions])
    url = redacted_url(log.storage.url)
    part = f" (partition {log.number})" if isinstance(log, PartitionView) else ""
    waiting = sum(max(0, end - first) for end, first in zip(state.ends, taken, strict=False))
    return InputLag(
        folder_name(url) + part,
        url + part,
        state.boundary,
        None,
        -(-waiting // log.readers),
        state.finished,
        tentative=state.outage.tentative // log.readers if state.outage else 0,
    )


def opened_inputs(log: Log, open_log: Callable[[str], Log]) -> list[Log | InputLag]:
    """Returns the inputs of the operator that writes a stream; of those that cannot be opened, why."""
    origins = origins_of(log.spec.upstream)
    if log.spec.operator is None:
        return []
    found: list[Log | InputLag] = []
    for number, origin in enumerate(origins):
        path = redacted_url(origin.path)
        try:
            found.append(opened_origin(log, number, open_log))
        except StrandlineError as problem:
            found.append(InputLag(folder_name(path), path, None, None, 0, finished=False, problem=problem.what))
    return found


def taken_in_until(standings: Sequence[Standing]) -> int | None:
    """Returns the time up to which all partitions of an operator have taken in its inputs; None before that."""
    return first_of_all(s.stands.bound for s in standings)


def waits_for(lags: Sequence[InputLag], until: int | None, *, is_timestamp: bool) -> str | None:
    """Returns which input the others wait for, in a sentence, if an operator has taken in all up to this time.

    None if no tuple waits for an input that is behind, or the operator has not come as far as that itself. Tentative
    tuples wait for their own input: only a fork takes them in, which needs a bound.

    >>> orders = InputLag("orders", "streams/orders", 43_800_000_000, 0, 9, finished=False)
    >>> payments = InputLag("payments", "streams/payments", 43_385_000_000, 415_000_000, 0, finished=False)
    >>> waits_for([orders, payments], 43_385_000_000, is_timestamp=True)
    'waits for payments: its boundary is 12:03:05, orders is at 12:10:00 (9 tuples wait)'
    >>> guessing = replace(payments, tentative=3)
    >>> waits_for([guessing, replace(orders, waiting=0)], 43_385_000_000, is_timestamp=True)
    'waits for payments: its boundary is 12:03:05 and 3 tuples behind it are only tentative'
    """
    known = [lag for lag in lags if lag.problem is None]
    last = min((lag for lag in known if not lag.finished), key=_reach, default=None)
    if last is None or len(known) < len(lags):
        return None
    if last.boundary is not None and (until is None or until < last.boundary):
        return None
    ahead = [lag for lag in known if _reach(lag) > _reach(last) and lag.waiting]
    if not ahead and not last.tentative:
        return None
    first = max(ahead, key=_reach, default=last)
    texts = [_text(lag, is_timestamp=is_timestamp) for lag in (last, first)]
    days = {text.partition(" ")[0] for text in texts if text and " " in text}
    if is_timestamp and len(days) == 1:
        texts = [text and text.partition(" ")[2] for text in texts]
    own = f"its boundary is {texts[0]}" if texts[0] else "it has no boundary yet"
    if last.tentative:
        many = plural(last.tentative, "tuple")
        own += f" and {many} behind it {'is' if last.tentative == 1 else 'are'} only tentative"
    if first is last:
        return f"waits for {last.name}: {own}"
    others = f"{first.name} is {f'at {texts[1]}' if texts[1] else 'finished'}"
    return f"waits for {last.name}: {own}, {others} ({plural(sum(lag.waiting for lag in ahead), 'tuple')} wait)"


def waits_for_results(lag: InputLag, *, is_timestamp: bool) -> str | None:
    """Returns what an operator over this input alone waits for; None unless all that is new is tentative."""
    return waits_for([lag], lag.boundary, is_timestamp=is_timestamp)


def _reach(lag: InputLag) -> float:
    """Returns a number for comparing: what has no boundary is behind everything, what is finished before everything."""
    return float("-inf") if lag.boundary is None else float("inf") if lag.finished else lag.boundary


def _text(lag: InputLag, *, is_timestamp: bool) -> str | None:
    if lag.boundary is None or lag.boundary == END_OF_TIME:
        return None
    return time_text(lag.boundary, is_timestamp=is_timestamp).removesuffix(".000")
