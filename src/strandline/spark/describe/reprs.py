"""Queries, streams and builders as a prompt and a notebook show them. Nothing here raises, and nothing takes long."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.card import bars, card
from strandline.log.index.entries import tuples_kept
from strandline.log.storage.redaction import redacted_url
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.operator_texts import shapes_text
from strandline.units import CONSUMED, time_text
from strandline.wording import exact_duration, plural

if TYPE_CHECKING:
    from strandline.operators.operator import Definition
    from strandline.spark.operator.processing_element import Upstream
    from strandline.spark.query.query import Query

Facts = Mapping[str, object]
COLUMNS_SHOWN = 8
"""Of a longer selection the first columns are shown."""


def shown(make: Callable[[], str], otherwise: str) -> str:
    """Returns the text of `make`; if that fails, the other text, so that looking at a thing never raises."""
    try:
        return make()
    except Exception:
        return otherwise


# ---------------------------------------------------------------------- queries


def query_text(query: Query) -> str:
    """Shows a query, for example: Query(streams/average, active, batch 12, 5,000 open windows)."""

    def make() -> str:
        facts, progress = _query_facts(query), query.progress
        parts = [redacted_url(query._run.place.url), str(facts["state"])]
        parts += [str(facts["inputs"])] if facts["inputs"] is not None else []
        parts += [f"batch {facts['batch']}"] if facts["batch"] is not None else []
        parts += [plural(number, "open window")] if (number := progress.get("open_windows")) else []
        parts += [f"{facts['tuples']} tuples"] if facts["tuples"] is not None else []
        return f"Query({', '.join(parts)})"

    return shown(make, "Query(…)")


def query_html(query: Query) -> str:
    """Shows a query as a card, with what a recovery would read, or the ends of the partitions."""

    def make() -> str:
        progress = query.progress
        if "replay" in progress:
            values = {f"replay of {p}": n for p, n in progress["replay"].items()}
            values.update({f"extent of {p}": n for p, n in progress.get("extent", {}).items()})
        else:
            values = {f"partition {p}": n for p, n in progress.get("offsets", {}).items()}
        return card(f"Query: {redacted_url(query._run.place.url)}", _query_facts(query), bars(values))

    return shown(make, card("Query", {}))


def _query_facts(query: Query) -> dict[str, object]:
    progress = query.progress
    running: Mapping[str, Any] = progress.get("running", {})
    number, ends = progress.get("open_windows"), sum(progress.get("offsets", {}).values())
    return {
        "state": _state(query),
        "inputs": _outage(progress),
        "batch": batch if (batch := progress.get("batch", -1)) >= 0 else None,  # none of Spark's has come yet
        "commit": progress.get("commit"),
        "tuples": _number(ends) if ends and number is None else None,
        "open windows": None if number is None else _number(number),
        "waiting": None if "waiting" not in progress else f"{_number(progress['waiting'])} tuples",
        "recovery": None if "predicted_recovery_s" not in progress else f"{progress['predicted_recovery_s']:g} s",
        "running": ", ".join(f"{name} {value}" for name, value in running.items()) or None,
    }


def _outage(progress: Mapping[str, Any]) -> str | None:
    """Returns the state of an operator with a bound, if it is not STABLE: UP_FAILURE without south."""
    if progress.get("state", "STABLE") == "STABLE":
        return None
    return " without ".join(filter(None, [progress["state"], ", ".join(progress["missing"])]))


def _state(query: Query) -> str:
    with contextlib.suppress(Exception):
        if query.is_active:
            down = query.progress
            if "next_try_s" in down:
                return f"down, starts again in {down['next_try_s']:g} s (try {down['tries']})"
            return "active"
        if (failure := query.exception()) is not None:
            return f"failed: {type(failure).__name__}"
    return "ended"


# ---------------------------------------------------------------------- streams


def stream_text(log: Log) -> str:
    """Shows a stream, for example: Stream(streams/items, 2 partitions, 1,000 tuples)."""

    def make() -> str:
        kept = _kept(log)
        parts = [repr(redacted_url(log.storage.url)), plural(log.spec.partitions, "partition")]
        parts += [] if kept is None else [plural(kept, "tuple")]
        return f"Stream({', '.join([*parts, *(['finished'] if log.state.finished else [])])})"

    return shown(make, "Stream(…)")


def stream_html(log: Log) -> str:
    """Shows a stream as a card, with the offsets of its partitions."""

    def make() -> str:
        facts = stream_facts(log)
        state = log.state
        held = {f"offsets of {p}": state.ends[p] - state.starts[p] for p in range(log.spec.partitions)}
        return card(f"Stream: {redacted_url(log.storage.url)}", facts, bars(held))

    return shown(make, card("Stream", {}))


def stream_facts(log: Log) -> dict[str, object]:
    """Returns the facts that need no block: of a stream on this machine as of now, else as of the last look."""
    kept = _kept(log)
    spec, state = log.spec, log.state
    boundary = None if state.boundary is None else time_text(state.boundary, is_timestamp=spec.time_is_timestamp)
    return {
        "columns": ", ".join(field["name"] for field in spec.schema["fields"][:20]),
        "key": ", ".join(spec.key),
        "time": spec.time,
        "tuples": None if kept is None else _number(kept),
        "aside": _number(state.ends[spec.late]) if state.ends[spec.late] else None,
        "boundary": boundary,
        "commits": _number(state.seq + 1),
        "finished": "yes" if state.finished else None,
    }


def _kept(log: Log) -> int | None:
    """Returns the number of tuples; None if that needs another machine."""
    is_near = log.storage.local_path("x") is not None
    with contextlib.suppress(Exception):
        if is_near:
            log.refresh()
        if is_near or log.spec.operator is None:  # results among footprints are counted in the index
            return tuples_kept(log)
    return None


# ---------------------------------------------------------------------- builders


def entry_text(url: str, spec: StreamSpec) -> str:
    """Shows an entry point, for example: Entry('streams/items', key=id, time=at)."""
    return f"Entry({redacted_url(url)!r}, key={', '.join(spec.key)}, time={spec.time})"


def entry_html(url: str, spec: StreamSpec) -> str:
    """Shows an entry point as a card."""
    facts = {
        "columns": ", ".join(field["name"] for field in spec.schema["fields"][:20]),
        "key": ", ".join(spec.key),
        "time": spec.time,
        "partitions": spec.partitions,
        "lateness": _span(spec, spec.lateness),
        "retention": spec.retention if spec.retention == CONSUMED else _span(spec, spec.retention),
    }
    return shown(lambda: card(f"Entry: {redacted_url(url)}", facts), card("Entry", {}))


def _address(input_: Upstream) -> str:
    """Returns the address of an input; of replicas, the addresses of all of them."""
    return " or ".join(redacted_url(place.url) for place in input_._input_places)


def element_text(kind: str, inputs: Sequence[Upstream], facts: Callable[[], Facts]) -> str:
    """Shows an operator, for example: Aggregation(streams/items, count_window(10), n=count_all(), cec(…))."""
    return shown(
        lambda: f"{kind}({', '.join([*map(_address, inputs), *map(str, filter(None, facts().values()))])})",
        f"{kind}(…)",
    )


def element_html(
    kind: str, inputs: Sequence[Upstream], facts: Callable[[], Facts], picture: Callable[[], str] = str
) -> str:
    """Shows an operator as a card: the inputs, their key, then the facts; the kind alone if one of these fails."""

    def make() -> str:
        name = "input" if len(inputs) == 1 else "inputs"
        of = {name: ", ".join(map(_address, inputs)), "key": ", ".join(inputs[0]._input_spec.key)}
        return card(kind, {**of, **facts()}, picture())

    return shown(make, card(kind, {}))


def operator_facts(inputs: Sequence[Upstream], definition: Definition) -> dict[str, str]:
    """Returns texts of the operator and of the work on its inputs before."""
    before = shapes_text(definition.to_json().get("shapes", ()), columns_max=COLUMNS_SHOWN)
    operator = definition.text(is_timestamp=inputs[0]._input_spec.time_is_timestamp)
    found = {"before": "" if before in operator else before, "operator": operator}
    return {name: text for name, text in found.items() if text}


def stage_text(operator: object, url: str) -> str:
    """Shows an operator with its output, for example: Aggregation(…) -> streams/average."""
    return shown(lambda: f"{operator!r} -> {redacted_url(url)}", "Stage(…)")


def stage_html(operator: Any, url: str) -> str:
    """Shows an operator with its output: the operator's card, with the address below."""
    return shown(
        lambda: f"{operator._repr_html_()}<div>&rarr; {html.escape(redacted_url(url))}</div>", card("Stage", {})
    )


def _span(spec: StreamSpec, length: int | None) -> str | None:
    if length is None:
        return None
    return exact_duration(length) if spec.time_is_timestamp else _number(length)


def _number(value: int) -> str:
    return f"{value:,}"
