"""One seed, one run: replicas that are written by hand, and a query of Spark's that reads them, dies and is restarted.

The query is as Spark's is: it notes the end of a batch before the batch is read, and repeats a batch that it does not
know to be done. What must hold, of what a sink holds that lets a repeated batch take the place of the first, or leaves
it out:

    every stable result is there once, in order, whichever replicas were lost, and whenever
    a batch that is repeated has the same stable results
    in the end nothing tentative counts, and whatever was void is said to be corrected
"""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

from strandline.clock import ManualClock
from strandline.errors import StorageError
from strandline.inputs.replicas.numbered_results import NumberedResults
from strandline.inputs.replicas.replica_changes import ReplicaChanges
from strandline.inputs.replicas.replica_place import ReplicaPlace
from strandline.inputs.replicas.replica_set import ReplicaSet
from strandline.inputs.replicas.result_span import ResultSpan
from tests.simulation.operator_world import require
from tests.simulation.written_replicas_world import A_RESULT, PATIENCE_S, Disk, Player

Row = tuple[str, int, int]
"""Kind, end of the window, and how many stable results come before."""


class Query:
    """What outlives a driver: what Spark has noted, and what its sink holds."""

    def __init__(self, rng: Random, clock: ManualClock, players: list[Player], *, tentative: bool) -> None:
        self._rng = rng
        self._clock = clock
        self._players = players
        self._tentative = tentative
        self._replaces = rng.random() < 0.5
        self._noted: list[tuple[ReplicaPlace, ReplicaPlace]] = []
        self._done = 0
        self.sink: dict[int, list[Row]] = {}
        self._lacks = False
        """Whether the guesses of a batch that was repeated are not told anew yet, or never will be."""
        self.repeated = 0
        self.stop()

    def stop(self) -> None:
        """The driver is gone, and knows no more that a batch was repeated."""
        self._results: NumberedResults | None = None
        self._has_repeated = False

    def trigger(self) -> bool:
        """One batch, if there is anything; whether there was. The driver may die on the way."""
        try:
            return self._batch()
        except StorageError:  # nobody has what was there
            self.stop()
            return False

    def _batch(self) -> bool:
        if self._results is None:
            found = ReplicaSet([p.open for p in self._players], clock=self._clock, patience_us=round(PATIENCE_S * 1e6))
            self._results = NumberedResults(found)
            self._changes = ReplicaChanges(found, self._results)
        is_repeated = self._done < len(self._noted)
        if not is_repeated:
            start = self._noted[-1][1] if self._noted else self._results.oldest()
            end = self._end(start)
            if end == start:
                self._check_guesses(start)
                return False
            self._noted.append((start, _through_text(end)))
            if self._dies():
                return True
        number = self._done
        rows = self._rows(*self._noted[number])
        if is_repeated:
            self._lacks = self._has_repeated = True
        elif self._has_repeated or self._noted[number][1].partitions[0].t_max is None:
            self._lacks = self._has_repeated = False
        if self._dies():
            return True
        self._take(number, rows)
        if not self._dies():
            self._done += 1
        return True

    def _dies(self) -> bool:
        if self._rng.random() < 0.07:
            self.stop()
            return True
        return False

    def _take(self, number: int, rows: list[Row]) -> None:
        before = self.sink.get(number)
        if before is not None:
            self.repeated += 1
            stable, again = ([row for row in one if row[0] == "stable"] for one in (before, rows))
            require(stable == again, "batch", number, "had", stable, "and when it was repeated", again)
        if before is None or self._replaces:
            self.sink[number] = rows

    def _check_guesses(self, place: ReplicaPlace) -> None:
        """All was told: what counts for the reader counts in the sink."""
        t_max = place.partitions[0].t_max
        latest = max(Folded(self.sink).guesses, default=None)
        require(self._lacks or latest == t_max, "guesses count up to", t_max, "and in the sink", latest)

    # ------------------------------------------------------------------ one or the other

    def _end(self, start: ReplicaPlace) -> ReplicaPlace:
        assert self._results is not None
        limit = self._rng.choice([1, 3, 1000])
        if self._tentative:
            return self._changes.after(start, limit)
        return self._results.after(start, lambda there: [min(limit, there[0])])

    def _rows(self, start: ReplicaPlace, end: ReplicaPlace) -> list[Row]:
        assert self._results is not None
        if not self._tentative:
            return [row for span in self._results.spans(start, end) for row in self._of_span(span)]
        found: list[Row] = []
        for one in self._changes.between(start, end):
            found += [row for table in one.before for row in _told(table)]
            found += self._of_span(one.results) if one.results else []
            found += [row for table in one.after for row in _told(table)]
        return found

    def _of_span(self, span: ResultSpan) -> list[Row]:
        storages: list[Any] = [lambda player=player: Disk(player) for player in self._players]
        return [
            ("stable", end, first + at)
            for first, table in span.read(storages, clock=self._clock, wait_s=0)
            for at, end in enumerate(table.column("window_end").to_pylist())
        ]


def _through_text(place: ReplicaPlace) -> ReplicaPlace:
    return ReplicaPlace.from_json(place.to_json())


def _told(table: pa.Table) -> list[Row]:
    return [(row["_kind"], row["window_end"], row["_result"]) for row in table.to_pylist()]


def run(seed: int, *, tentative: bool) -> Query:
    """Runs the seed."""
    rng, clock = Random(seed), ManualClock(1_000_000)
    players = [Player(rng, number) for number in range(rng.choice([2, 2, 3]))]
    query, there, is_missing = Query(rng, clock, players, tentative=tentative), 0, False
    for _ in range(rng.choice([20, 60])):
        clock.advance(0.1)
        is_missing ^= rng.random() < 0.1
        there += 0 if is_missing else rng.choice([0, 1, 4])
        for player in rng.sample(players, len(players)):
            player.play(there, is_missing=is_missing)
        if rng.random() < 0.7:
            query.trigger()
        if rng.random() < 0.03:
            query.stop()
    for player in players:
        player.is_reachable = True
    for player in rng.sample(players, rng.randint(1, len(players))):
        player.finish(there)
    idle = 0
    for _ in range(1000):
        clock.advance(0.1)
        idle = 0 if query.trigger() else idle + 1
        if idle > 2 * PATIENCE_S / 0.1:
            break
    _check(query, there)
    return query


def _check(query: Query, there: int) -> None:
    found = Folded(query.sink)
    right = [A_RESULT * (n + 1) for n in range(there)]
    require(found.stable == right, "it showed", found.stable, "and not all", there)
    require(not found.guesses and not found.is_open, "all is over, and something is tentative", found.guesses)


class Folded:
    """What a sink holds, by kind."""

    def __init__(self, sink: dict[int, list[Row]]) -> None:
        self.stable: list[int] = []
        self.guesses: list[int] = []
        self.is_open = False
        for row in (row for _, rows in sorted(sink.items()) for row in rows):
            self._take(*row)

    def _take(self, kind: str, end: int, before: int) -> None:
        many = len(self.stable)
        require(before == many, kind, "stands behind", before, "results, and there are", many)
        if kind == "stable":
            self.stable.append(end)
        elif kind == "tentative":
            self.guesses.append(end)
            self.is_open = True
        elif kind == "undo":
            self.guesses = []
        else:
            require(not self.guesses, "reconciliation is done, and guesses count", self.guesses)
            self.is_open = False
