"""The parts of what `inspect` shows, each from a stream's summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from strandline.cli import terminal
from strandline.cli.terminal import (
    ACCENT,
    QUIET,
    ago,
    bars,
    count,
    facts_table,
    fitted_table,
    folded,
    moment,
    needs_text,
    rows_table,
    size,
)
from strandline.log.stream.reason import LATE
from strandline.units import CONSUMED, time_text
from strandline.wording import duration, exact_duration, plural

if TYPE_CHECKING:
    from strandline.log.index.entries import Histogram
    from strandline.log.reading.summary import OperatorSummary, Summary

_CHART_LINES = 5
_NOT_IN_SHORT = ("id", "created", "lateness", "retention", "writer")


def stream(s: Summary, now_us: int, *, is_short: bool) -> RenderableType:
    """Shows the stream's settings and size."""
    aside = {LATE: 0, **s.set_aside}
    beside = "".join(f"  [{QUIET}]{escape(reason)}[/] {count(tuples)}" for reason, tuples in aside.items())
    rows: dict[str, RenderableType] = {
        "path": Text(s.url, style="bold"),
        "id": Text(s.id),
        "created": f"{moment(s.created_us)} UTC [{QUIET}]{escape(s.created_by)}[/]" if s.created_us else "-",
        "lateness": "nothing is ever late" if s.lateness is None else _exact(s, s.lateness),
        "retention": _retention(s),
        "tuples": f"[bold {ACCENT}]{count(s.tuples)}[/]{beside}",
        "size": f"{size(s.size_bytes)} in {plural(s.blocks, 'block')}, {plural(s.commits, 'commit')}",
        _axis(s): _range(s),
        "rate": _rates(s),
        "published": f"{moment(s.published_us)} UTC [{QUIET}]{ago(s.published_us, now_us)}[/]"
        if s.published_us
        else "never",
    }
    if s.finished:
        rows["finished"] = "nothing will be added"
    if s.writer is not None:
        rows["writer"] = Text.assemble(
            f"batch {s.writer.batch} of query {s.writer.query}", (f"\nrun {s.writer.run}", QUIET)
        )
    return facts_table({name: value for name, value in rows.items() if not is_short or name not in _NOT_IN_SHORT})


def _retention(s: Summary) -> str:
    """Describes what retention drops, and whether it has dropped anything."""
    dropped = sum(p.start for p in s.partitions)
    gone = f", {plural(dropped, 'offset')} dropped so far" if dropped else ""
    if s.retention is None:
        return ("nothing goes by itself" if dropped else "everything is kept") + gone
    if s.retention == CONSUMED:
        of = plural(len(s.consumers), "consumer")
        kept = f"until {of} passed it" if s.consumers else "until consumed; everything, as no consumer is registered"
    else:
        kept = _exact(s, s.retention)
    return kept + (" (set by its writer)" if s.retention_is_writers else "") + gone


def _rates(s: Summary) -> str:
    if s.rate is None or s.rate_seconds is None:
        return "-"
    window = duration(round(s.rate_seconds * 1_000_000))
    overall = terminal.rate(s.rate_overall)
    return f"{terminal.rate(s.rate)} [{QUIET}]in the last {window},[/] {overall} [{QUIET}]overall[/]"


def schema(s: Summary) -> RenderableType:
    """Columns, their types, and which are key and time."""
    table = rows_table("column", "type", "")
    for name, kind in s.columns.items():
        role = ["key"] if name in s.key else []
        role += ["time"] if name == s.time else []
        table.add_row(Text(name, style=ACCENT if role else ""), Text(kind), Text(", ".join(role), style=QUIET))
    return table


def partitions(s: Summary, width: int, shown: int) -> RenderableType:
    """Shows the first partitions, and the side log if it is not empty."""
    parts = [*s.partitions[:shown], *([s.late] if s.late.end else [])]
    cells = {
        "": ["late" if p is s.late else str(p.partition) for p in parts],
        "start": [count(p.start) for p in parts],
        "end": [count(p.end) for p in parts],
        "tuples": [count(p.tuples) for p in parts],
        "blocks": [count(p.blocks) for p in parts],
        "size": [size(p.size_bytes) for p in parts],
        "oldest": [_second(s, p.time_min) for p in parts],
        "newest": [_second(s, p.time_max) for p in parts],
        "boundary": ["" if p is s.late else _second(s, p.boundary) for p in parts],
    }
    numbers = ("", "start", "end", "tuples", "blocks", "size")
    table = fitted_table(cells, width, right=numbers, dispensable=("blocks", "oldest", "tuples", "size"))
    if s.late.end:
        table.rows[-1].style = QUIET
    return _with_more(table, len(s.partitions) - shown)


def chart(s: Summary, histogram: Histogram) -> tuple[RenderableType, str]:
    """Draws bars of tuples over time; returns them with the meaning of their heights."""
    values = histogram.tuples
    lines = [Text(line, style=ACCENT) for line in bars(values, _CHART_LINES)]
    first, last = _second(s, s.time_min), _second(s, s.time_max)
    ends = Text(first + last.rjust(max(len(last) + 2, len(values) - len(first))), style=QUIET)
    bucket = max(1, round(histogram.edges[1] - histogram.edges[0]))
    return Group(*lines, ends), f"tuples over {_axis(s)}, at most {count(max(values))} in {_span(s, bucket)}"


def operator(s: Summary, o: OperatorSummary, shown: int) -> RenderableType:
    """Shows the operator, where it stands, and the cost of a recovery."""
    marks = f"{count(o.footprints['g_open'])} G-open, {count(o.footprints['g_check'])} G-check in the last batch"
    how = o.mode if o.measured else f"{o.mode}, costs assumed"
    predicted = f"{o.predicted_recovery_s:.2f} s predicted, {o.predicted_cold_recovery_s:.2f} s in a new process"
    facts: dict[str, RenderableType | None] = {
        "windows" if o.window else "operator": Text(o.windows),
        "tuples": Text(o.shape) if o.shape and o.shape not in o.windows else None,
        "aggregates": Text(", ".join(f"{n}={what}" for n, what in o.aggregates.items())) if o.aggregates else None,
        "inputs" if o.inputs else "input": _inputs(s, o),
        "since": Text(o.since) if o.since != "earliest" else None,
        "state": None if o.outage is None else _outage(o.outage),
        "open windows": f"[bold {ACCENT}]{count(o.open_windows)}[/]  [{QUIET}]footprints[/] {marks}",
        "recovery": f"{predicted} [{QUIET}]({how})[/]",
    }
    if o.losses is not None:
        lost = f"{plural(o.losses.tuples, 'tuple')} skipped, {plural(o.losses.windows, 'window')} gone"
        times = plural(o.losses.count, "failure")
        facts["losses"] = f"[yellow]{lost}[/] [{QUIET}]in {times}; stream.losses() has them[/]"
    numbers = ("", "input", "open", "extent q", "replay u", "predicted")
    table = rows_table(*numbers, "last took", right=(*numbers, "last took"))
    for p in o.partitions[:shown]:
        last = p["last_recovery"]
        took = "" if last is None else f"{last['load_s'] + last['replay_s']:.3g} s"
        values = (p["partition"], p["input"], p["open_windows"], p["extent"], p["replay"])
        table.add_row(*map(count, values), f"{p['predicted_recovery_s']} s", took)
    return Group(facts_table(facts), _with_more(table, len(o.partitions) - shown))


def _inputs(s: Summary, o: OperatorSummary) -> RenderableType:
    """Shows how far several inputs are complete and which one the others wait for; of one input, why it waits."""
    waits = [Text(o.waits_for, style="yellow")] if o.waits_for else []
    if not o.inputs:
        return Group(Text(o.input), *waits)
    table = rows_table("", "complete up to", "behind", "waiting", right=("behind", "waiting"))
    for lag in o.inputs:
        until = lag.problem or ("finished" if lag.finished else _second(s, lag.boundary))
        behind = _span(s, lag.behind) if lag.behind else ""
        table.add_row(Text(lag.name), Text(until), behind, count(lag.waiting))
    return Group(table, *waits)


def _outage(outage: Mapping[str, Any]) -> RenderableType:
    """Shows the state, since when, the missing inputs and the number of tentative results."""
    is_well = outage["state"] == "STABLE"
    text = Text.assemble(
        (outage["state"], "green" if is_well else "yellow"), (f" since {moment(outage['since_us'])} UTC", QUIET)
    )
    if outage["missing"]:
        text.append(f"\nmissing: {', '.join(outage['missing'])}", "yellow")
    if outage["tentative"]:
        text.append(f"\n{plural(outage['tentative'], 'tentative result')}")
    if "blocked" in outage:
        text.append(f"\n{outage['blocked']}", "yellow")
    for partition, problem in outage.get("problems", {}).items():
        text.append(f"\nno guesses in partition {partition} until more is certain: {problem}", "red")
    return text


def consumers(s: Summary, now_us: int, width: int) -> RenderableType:
    """Shows the consumers that keep tuples from being truncated."""
    right = ("behind", "holds", "moved on")
    table = rows_table("name", "behind", "holds", "needs from", "moved on", right=right)
    table.columns[0].no_wrap = True  # `folded` finds better places
    for c in s.consumers:
        behind = Text(count(c.lag_tuples), style="" if c.lag_tuples else "green")
        label, held = Text(folded(c.label, width // 3)), size(c.held_bytes)
        table.add_row(label, behind, held, needs_text(c.needs), ago(c.updated_us, now_us))
    return table


def _with_more(table: Table, left_out: int) -> RenderableType:
    if left_out <= 0:
        return table
    return Group(table, Text(f"… and {plural(left_out, 'more partition')}; --json has them all", style=QUIET))


def _axis(s: Summary) -> str:
    """Returns a name for the values of the time column."""
    is_count = s.operator is not None and s.operator.window.get("kind") == "count"
    return "input offsets" if is_count else "time"


def _range(s: Summary) -> str:
    if not s.tuples:
        return "no tuples yet"
    zone = f" [{QUIET}]UTC[/]" if s.columns[s.time] == "timestamp" else ""
    ends = [time_text(value, is_timestamp=s.time_is_timestamp) for value in dict.fromkeys([s.time_min, s.time_max])]
    return " … ".join(ends) + zone


def _second(s: Summary, value: int | None) -> str:
    return moment(value, is_timestamp=s.time_is_timestamp)


def _span(s: Summary, value: int) -> str:
    return duration(value) if s.time_is_timestamp else count(value)


def _exact(s: Summary, value: int) -> str:
    return exact_duration(value) if s.time_is_timestamp else count(value)
