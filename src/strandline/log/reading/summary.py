"""A summary of a stream, at a cost that hardly depends on its length.

No block is opened. Sizes and times come from the leaves of the index, whole columns at a time; rates come from the end
offsets that every append carries, so two manifests are enough for them, and the older one is found by binary search.
Tuples are results: what stands between them in an operator's stream is its own business.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from strandline.errors import DroppedError
from strandline.log.index.entries import Entries, Histogram, PartitionSummary
from strandline.log.operator_state.beginning import since_text
from strandline.log.operator_state.input_lag import (
    InputLag,
    input_lags,
    opened_inputs,
    taken_in_until,
    waits_for,
    waits_for_results,
)
from strandline.log.operator_state.loss import TotalLosses, total_losses
from strandline.log.operator_state.operator_words import WordsOf, kind_words
from strandline.log.operator_state.outage import outage_report
from strandline.log.operator_state.upstream import origins_of
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.column_types import fields_of, type_name
from strandline.log.stream.commit import Commit
from strandline.log.stream.log import END, Log
from strandline.log.stream.manifest import Writer
from strandline.log.upkeep.consumer_registry import Consumer, consumers
from strandline.operator_texts import aggregate_texts, shape_text, shapes_text
from strandline.units import Retention

BUCKETS = 60
RATE_WINDOW_US = 60_000_000
_COMMITS_TRIED = 64
_WIDTH_MAX = 100


@dataclass(frozen=True, slots=True)
class ConsumerSummary:
    """A registered consumer, how far it is behind, and what it holds back: blocks that no truncation drops."""

    name: str
    label: str
    """Its name for people: of an operator that of its query, or of the folder that it writes."""
    writes: str
    """Of an operator: the stream it writes, as far as it has said so."""
    needs: tuple[int, ...]
    lag: tuple[int, ...]
    """Per partition, tuples that it has not read yet."""
    lag_tuples: int
    held_tuples: int
    """In the blocks that it needs, the one with its mark included."""
    held_bytes: int
    alone_tuples: int
    """Those of them that no other consumer needs: what could be truncated if this one went."""
    alone_bytes: int
    updated_us: int
    """When it last registered what it needs."""


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """Where the operator that computes a stream stands, and what its recovery would cost now."""

    window: Mapping[str, Any]
    """Empty if it is no aggregation."""
    windows: str
    """The same in words; of others, what they do."""
    shape: str
    """The work on tuples before the operator takes them in, in words."""
    aggregates: Mapping[str, str]
    input: str
    since: str
    """Where it began in its inputs: "earliest", "latest", a time, or offsets by partition."""
    mode: str
    """The way of a recovery: eventual (footprints), instant (whole checkpoints), partial (no replay), or none."""
    open_windows: int
    predicted_recovery_s: float
    """Of the slowest partition: they recover at the same time. In a process that has run operators before."""
    predicted_cold_recovery_s: float
    """The same in a new process, from its start."""
    measured: bool
    """True if these predictions rest on measurements, and not on assumptions."""
    footprints: Mapping[str, int]
    """Written in the last batch, by kind."""
    partitions: tuple[Mapping[str, Any], ...]
    inputs: tuple[InputLag, ...]
    """Of an operator over several inputs: how far each has come."""
    waiting: int
    """Offsets of the inputs that are published and not taken in yet, at most."""
    losses: TotalLosses | None
    """The cost of failures under a policy that does not replay; None if nothing was lost."""
    waits_for: str | None
    """Which of them the others wait for, in a sentence; of one input, that all that is new in it is tentative."""
    outage: Mapping[str, Any] | None
    """Of an operator with a bound: its state, since when, which inputs are missing, how many results are tentative."""


@dataclass(frozen=True, slots=True, repr=False)
class Summary:
    """A stream as of the last refresh of its log."""

    id: str
    url: str
    columns: Mapping[str, str]
    """Names and types, in order."""
    key: tuple[str, ...]
    time: str
    time_is_timestamp: bool
    """Times are microseconds since 1970 UTC if so, plain numbers if not."""
    lateness: int | None
    retention: Retention | None
    """The time for which the present writer keeps tuples; None: nothing is dropped by itself."""
    retention_is_writers: bool
    """True if the last writer chose that, and not the writer that created the stream."""
    created_us: int
    created_by: str
    commits: int
    partitions: tuple[PartitionSummary, ...]
    late: PartitionSummary
    """The side log."""
    set_aside: Mapping[str, int]
    """The tuples there, by reason."""
    boundary: int | None
    finished: bool
    """Nothing will ever be added; the boundary is the end of time."""
    time_min: int | None
    time_max: int | None
    tuples: int
    blocks: int
    size_bytes: int
    published_us: int | None
    """When the last batch was published."""
    rate: float | None
    """Tuples a second over the last minute or so of publications."""
    rate_seconds: float | None
    rate_overall: float | None
    """Tuples a second since the first publication."""
    writer: Writer | None
    consumers: tuple[ConsumerSummary, ...]
    histogram: Histogram | None
    operator: OperatorSummary | None

    def __repr__(self) -> str:
        return _field_lines(self)

    def to_json(self) -> dict[str, Any]:
        """Returns plain values, for users' programs."""
        return asdict(self)


def _field_lines(value: Any) -> str:
    """Returns the fields of a dataclass, a line each, those of its parts indented; long ones are cut."""
    lines = [type(value).__name__, *_lines(value, "  ")]
    return "\n".join(line if len(line) <= _WIDTH_MAX else line[: _WIDTH_MAX - 1] + "…" for line in lines)


def _lines(value: Any, indent: str) -> Iterator[str]:
    for field in fields(value):
        part = getattr(value, field.name)
        if is_dataclass(part):
            yield f"{indent}{field.name}"
            yield from _lines(part, indent + "  ")
        elif isinstance(part, tuple) and part and (is_dataclass(part[0]) or isinstance(part[0], Mapping)):
            yield f"{indent}{field.name}"
            yield from (f"{indent}  {_plain(one)}" for one in part)
        else:
            yield f"{indent}{field.name}: {_plain(part)}"


def _plain(part: Any) -> str:
    """Returns `name=value, …` for a part of several values, without what an empty one is made of."""
    if is_dataclass(part):
        return ", ".join(f"{field.name}={getattr(part, field.name)!r}" for field in fields(part))
    if isinstance(part, Mapping) and part:
        return ", ".join(f"{name}={value!r}" for name, value in part.items())
    return repr(part)


def _log_at(path: str) -> Log:
    return Log.open(open_storage(path))


def summary(
    log: Log, buckets: int = BUCKETS, open_input: Callable[[str], Log] = _log_at, words_of: WordsOf = kind_words
) -> Summary:
    """Returns a stream's settings, place, size, speed and shape over time, as of the log's last refresh.

    The inputs of an operator over several are opened by their paths, to see how far they have come. `words_of` gives
    the texts of the operator.
    """
    entries = Entries(log)
    spec, state = log.spec, log.state
    parts = entries.partitions(state)
    ours, late = parts[:-1], parts[-1]
    lowest = min((p.time_min for p in ours if p.time_min is not None), default=None)
    highest = max((p.time_max for p in ours if p.time_max is not None), default=None)
    rate, rate_seconds = _rate(log, entries, _window_start)
    rate_overall, _ = _rate(log, entries, _beginning)
    return Summary(
        id=spec.id,
        url=log.storage.url,
        columns={f["name"]: type_name(f["type"]) for f in fields_of(spec.schema)},
        key=spec.key,
        time=spec.time,
        time_is_timestamp=spec.time_is_timestamp,
        lateness=spec.lateness,
        retention=spec.retention if state.retention is None else state.retention,
        retention_is_writers=state.retention is not None,
        created_us=spec.created_us,
        created_by=spec.created_by,
        commits=state.seq + 1,
        partitions=tuple(ours),
        late=late,
        set_aside=_set_aside(log) if late.tuples else {},
        boundary=state.boundary,
        finished=state.finished,
        time_min=lowest,
        time_max=highest,
        tuples=sum(p.tuples for p in ours),
        blocks=sum(p.blocks for p in parts),
        size_bytes=sum(p.size_bytes for p in parts),
        published_us=state.published_us if any(state.ends) else None,
        rate=rate,
        rate_seconds=rate_seconds,
        rate_overall=rate_overall,
        writer=state.writer,
        consumers=_consumers(list(consumers(log)), entries, log),
        histogram=None if lowest is None or highest is None else entries.histogram(lowest, highest, buckets),
        operator=_operator(log, open_input, words_of),
    )


def _set_aside(log: Log) -> dict[str, int]:
    found: Counter[str] = Counter()
    for block in log.blocks(log.spec.late):
        found[block.reason] += block.end - max(block.first, log.state.starts[block.partition])
    return dict(found)


def _operator(log: Log, open_input: Callable[[str], Log], words_of: WordsOf) -> OperatorSummary | None:
    operator, standings, outage = log.spec.operator, log.state.standings, log.state.outage
    if operator is None:
        return None
    words = words_of(log.spec)
    last = next((m for m in reversed(log.tail.commits) if isinstance(m, AppendCommit)), None)
    kinds = ("g_open", "g_check")
    inputs = opened_inputs(log, open_input)
    is_timestamp = any(isinstance(one, Log) and one.spec.time_is_timestamp for one in inputs)
    lags = input_lags(inputs, standings)
    if len(lags) == 1:  # results of windows that go by count have other times than their input
        waits = waits_for_results(lags[0], is_timestamp=is_timestamp)
    else:
        waits = waits_for(lags, taken_in_until(standings), is_timestamp=log.spec.time_is_timestamp)
    return OperatorSummary(
        since=since_text(log.spec.begins, is_timestamp=is_timestamp),
        window=operator.get("window", {}),
        windows=words.text,
        shape="; ".join(filter(None, [shapes_text(operator.get("shapes", ())), shape_text(operator.get("shape", ()))])),
        aggregates=aggregate_texts(operator.get("aggregates", {})),
        input=", ".join(dict.fromkeys(" or ".join(origin.paths) for origin in origins_of(log.spec.upstream))),
        mode=standings[0].mode if standings else "eventual",
        open_windows=sum(s.open for s in standings),
        predicted_recovery_s=round(max((s.predicted_s for s in standings), default=0.0), 3),
        predicted_cold_recovery_s=round(max((s.predicted_cold_s for s in standings), default=0.0), 3),
        measured=bool(standings) and all(s.is_measured for s in standings),
        footprints={k: sum(b.rows.get(k, 0) for b in last.blocks) if last else 0 for k in kinds},
        partitions=tuple(
            {"partition": p, **s.forecast(), "last_recovery": s.recovered} for p, s in enumerate(standings)
        ),
        inputs=tuple(lags) if len(lags) > 1 else (),
        waiting=sum(lag.waiting for lag in lags),
        losses=total_losses(s.losses for s in standings),
        waits_for=waits,
        outage=outage_report(outage, [lag.name for lag in lags], words.blocked) if outage else None,
    )


def _consumers(registered: Sequence[Consumer], entries: Entries, log: Log) -> tuple[ConsumerSummary, ...]:
    summaries = []
    for consumer in registered:
        lag = _lag(consumer, entries, log)
        others = [c.needs for c in registered if c is not consumer]
        held = entries.since(consumer.needs)
        marks = zip(consumer.needs, *others, strict=True)
        shared = entries.since([max(own, min(rest, default=END)) for own, *rest in marks])
        summaries.append(
            ConsumerSummary(
                name=consumer.name,
                label=consumer.title,
                writes=consumer.writes,
                needs=consumer.needs,
                lag=lag,
                lag_tuples=sum(lag),
                held_tuples=held[0],
                held_bytes=held[1],
                alone_tuples=held[0] - shared[0],
                alone_bytes=held[1] - shared[1],
                updated_us=consumer.updated_us,
            )
        )
    return tuple(summaries)


def _lag(consumer: Consumer, entries: Entries, log: Log) -> tuple[int, ...]:
    """Returns, per partition, the tuples that the consumer has not read."""
    if log.spec.operator is None:
        return tuple(max(0, end - need) for need, end in zip(consumer.needs, log.state.ends, strict=False))
    return tuple(entries.tuples_from([*consumer.needs, END])[:-1].tolist())


# ---------------------------------------------------------------------- rates


def _rate(log: Log, entries: Entries, find: Callable[[Log], AppendCommit | None]) -> tuple[float | None, float | None]:
    """Returns the tuples a second from the append that is found to the last one, and the seconds between them."""
    state = log.state
    try:
        older = find(log)
    except DroppedError:  # while we looked; a rate is not worth another try
        older = None
    if older is None or state.published_us <= older.published_us:
        return None, None
    seconds = (state.published_us - older.published_us) / 1e6
    tuples: float = sum(state.ends[:-1]) - sum(older.ends[:-1])
    if log.spec.operator is not None:
        # How many offsets since then are those of results; of dropped ones, as many as of what is kept.
        kept = [max(pair) for pair in zip(older.ends, state.starts, strict=True)]
        offsets = sum(state.ends[:-1]) - sum(kept[:-1])
        tuples *= int(entries.tuples_from(kept)[:-1].sum()) / offsets if offsets else 0.0
    return tuples / seconds, seconds


def _beginning(log: Log) -> AppendCommit | None:
    """Returns the first append, or the first one of which there is a trace."""
    return next(log.commits.cuts(-1), None) or _first_append(log, range(log.kept, log.state.seq + 1))


def _window_start(log: Log) -> AppendCommit | None:
    """Returns the last append that is at least a window older than the newest, or else the first one."""
    wanted_us = log.state.published_us - RATE_WINDOW_US
    kept, end, step = log.kept, log.state.seq + 1, 1
    # Galloping back from the end, then halving: most of a minute's commits are in memory, of a long past few are read.
    while end - step >= kept and _commit(log, end - step).published_us > wanted_us:
        step *= 2
    around = range(max(kept, end - step), end - step // 2)
    later = around.start + bisect.bisect_right(around, wanted_us, key=lambda seq: _commit(log, seq).published_us)
    return _first_append(log, range(later - 1, kept - 1, -1)) or _first_append(log, range(later, end))


def _first_append(log: Log, seqs: range) -> AppendCommit | None:
    """Returns the first of these commits that is an append; gives up after a long row of others."""
    return next((m for seq in seqs[:_COMMITS_TRIED] if isinstance(m := _commit(log, seq), AppendCommit)), None)


def _commit(log: Log, seq: int) -> Commit:
    """Returns a commit, from memory if the log holds it."""
    tail = log.tail.commits
    if tail and tail[0].seq <= seq <= tail[-1].seq:
        return tail[seq - tail[0].seq]
    return log.commit(seq)
