"""One seed, one run: replicas that are written by hand, in any order that an operator may come to, and a reader.

As `replicas_world`, without operators: hundreds of changes where that one has a few. What must hold is the same.
"""

from __future__ import annotations

from random import Random
from typing import Any

from strandline.clock import ManualClock
from strandline.errors import StorageError
from strandline.inputs.replicas.replica_place import ReplicaPlace
from strandline.inputs.replicas.replica_reader import ReplicaReader
from strandline.inputs.replicas.replica_set import ReplicaSet
from strandline.log.operator_state.outage import Outage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from tests.simulation.operator_world import require
from tests.simulation.shown_results import Shown
from tests.support.written_replicas import SPEC, Written

A_RESULT = 10
"""So much time lies between two results."""
PATIENCE_S = 0.8


class Player:
    """A replica that does what the seed says, as an operator might."""

    def __init__(self, rng: Random, number: int) -> None:
        self._rng = rng
        self._name = f"replica{number}"
        self._begun = 0
        self.is_reachable = True
        self._begin()

    def _begin(self) -> None:
        self._begun += 1
        self.written = Written(f"{self._name}-{self._begun}")
        self.results = self._guessed = 0

    def open(self) -> Log:
        """As the reader's process has it."""
        return Log.open(Disk(self), ManualClock(1))  # type: ignore[arg-type]

    def play(self, there: int, *, is_missing: bool) -> None:
        """One commit, or what else may happen; `there` results can be computed by now.

        While an input `is_missing` to all replicas, they have what there is, and guess.
        """
        rng, chance = self._rng, self._rng.random()
        if is_missing:
            if chance < 0.2:
                self.is_reachable = not self.is_reachable
            elif chance < 0.7:
                self._commit(there, "guess" if self.results == there else "end", all_of_it=True)
        elif chance < 0.02:
            self._begin()
        elif chance < 0.06:
            self.is_reachable = not self.is_reachable
        elif chance < 0.1:
            compact(self.written.log, blocks_min=2, target_bytes=rng.choice([100, 100_000]))
        elif chance < 0.6:
            self._commit(there, rng.choice(["results", "results", "guess", "correct", "end"]))

    def finish(self, there: int) -> None:
        """All is well, and nothing will follow."""
        self._commit(there, "end", all_of_it=True)
        state = self.written.log.state
        self.written.log.append(Append(standings=state.standings, outage=Outage("STABLE", 9), finished=True))

    def _commit(self, there: int, what: str, *, all_of_it: bool = False) -> None:
        rng, outage = self._rng, self.written.log.state.outage
        forks = outage.forks if outage else ()
        if what == "correct" and not forks:
            return
        if what == "results" and forks and outage and outage.state == "UP_FAILURE":
            what = "correct"
        told: list[tuple[Kind, int]] = []
        if what in ("correct", "end") and forks and forks[0].tuples and outage and outage.state == "UP_FAILURE":
            told.append((Kind.UNDO, 0))
        if what != "guess":
            many = there - self.results if all_of_it else min(there - self.results, rng.choice([0, 1, 3, 8]))
            for _ in range(many):
                self.results += 1
                told += [(Kind.RESULT, self.results * A_RESULT), *[(Kind.G_OPEN, 0)] * rng.choice([0, 0, 1])]
        is_failing = what == "guess" or (bool(forks) and what != "end")
        if is_failing:
            told += [(Kind.TENTATIVE, time) for time in self._guesses(is_new=not forks)]
        elif forks:
            counts = forks[0].tuples and (Kind.UNDO, 0) not in told
            told += [*([(Kind.UNDO, 0)] if counts else ()), (Kind.REC_DONE, 0)]
        state = "STABLE" if not is_failing else "UP_FAILURE" if what == "guess" else "STABILIZATION"
        if state == "UP_FAILURE" and outage and outage.state == "STABILIZATION":
            state = "STABILIZATION"  # a failure meanwhile: the fork goes on
        self.written.append(told, state, self.results * A_RESULT + 1)  # type: ignore[arg-type]

    def _guesses(self, *, is_new: bool) -> list[int]:
        first = self.results + 1
        self._guessed = first if is_new else max(first, self._guessed)
        many = self._rng.choice([0, 1, 2, 5])
        found = [(self._guessed + n) * A_RESULT - self._rng.choice([0, 0, 3]) for n in range(many)]
        self._guessed += many
        return found


class Disk:
    """What lies at a replica's place, whatever stream that is by now; nothing can be read while it is out of reach."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def __getattr__(self, name: str) -> Any:
        if not self._player.is_reachable:
            raise StorageError("it cannot be reached", where=name)
        return getattr(self._player.written.storage, name)


def run(seed: int) -> int:
    """Runs the seed; how often the reader changed over."""
    rng, clock = Random(seed), ManualClock(1_000_000)
    players = [Player(rng, number) for number in range(rng.choice([2, 2, 3]))]
    shown, kept, reader, there, changes, is_missing = Shown(), None, None, 0, 0, False

    def look() -> None:
        nonlocal reader, kept, changes
        if reader is None:
            try:
                found = ReplicaSet([p.open for p in players], clock=clock, patience_us=round(PATIENCE_S * 1e6))
            except StorageError:
                return
            reader = ReplicaReader(found, kept)
        for table in reader.poll():
            assert reader.place is not None
            if kept is not None and kept.stream != reader.place.stream:
                changes += 1
                shown.change_over()
            shown.take(table, SPEC.columns, SPEC.time)
            kept = ReplicaPlace.from_json(reader.place.to_json())
            if rng.random() < 0.02:
                reader = None
                return

    for _ in range(rng.choice([20, 60])):
        clock.advance(0.1)
        is_missing ^= rng.random() < 0.1
        there += 0 if is_missing else rng.choice([0, 1, 4])
        for player in rng.sample(players, len(players)):
            player.play(there, is_missing=is_missing)
        if rng.random() < 0.7:
            look()
        if rng.random() < 0.03:
            reader = None
    for player in players:
        player.is_reachable = True
    for player in rng.sample(players, rng.randint(1, len(players))):
        player.finish(there)
    for _ in range(60):
        clock.advance(0.1)
        look()
        if reader is not None and reader.is_done:
            break
    require(reader is not None and reader.is_done, "the reader never gets to the end")
    shown.check_end()
    ends = [end for table in shown.stable for end in table.column("window_end").to_pylist()]
    require(ends == [A_RESULT * (n + 1) for n in range(there)], "it showed", ends, "and not all", there)
    return changes
