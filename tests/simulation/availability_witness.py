"""Whoever sees each tick of an operator with a bound, and knows what is right: results, guesses, and what counts.

The numbers are those of the properties in docs/how-availability-works.md. `delay_witness` knows when tuples have to be
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.log.operator_state.outage import ForkStanding, Outage
from strandline.log.operator_state.standing import Standing
from strandline.log.reading.tentative_results import changes
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.running.decision import Decision
from strandline.running.fork import Forked
from strandline.running.tick import Ticked
from strandline.units import END_OF_TIME
from tests.simulation.failing_inputs import Place
from tests.simulation.operator_world import require
from tests.simulation.simulated_operators import Placed
from tests.specification.plain_availability import Entry, counted
from tests.support.operator_streams import bits, published_results
from tests.support.with_tentative import with_tentative

if TYPE_CHECKING:
    from tests.simulation.availability_world import World


class AvailabilityWitness:
    """What forks have taken in, and what must hold of what is published."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._operator = world.operator
        self._source = world.source
        self.forks: list[list[Place] | None] = [None] * world.partitions
        """What each fork has taken in; None if nobody has seen it."""
        self._last: list[tuple[object, pa.Table]] = [(None, None)] * world.partitions
        """What was expected last of each fork, and of what."""
        self.states: set[str] = set()
        self.tentative = 0
        """Tentative results that were ever published."""
        self.guessed_of = self.anew = 0
        """Guesses of inputs that forks were found to hold, and how often forks were made anew for what came late."""

    def begin(self) -> None:
        """Another process goes on."""
        self.forks = [None] * self._world.partitions

    def see(self, base: LogState, ticked: Ticked, decision: Decision) -> None:
        """Tentative results are what an operator makes of what was there (3); short failures leave no trace (6)."""
        before, now = base.outage or Outage(), self._world.outage
        self.states.add(now.state)
        require(not self._world.is_short or now.state == "STABLE", "a failure shorter than the bound leaves a trace")
        stood = [standing.stands for standing in base.standings] or [None] * self._world.partitions
        is_corrected = before.state == "UP_FAILURE" and [d.standing.stands for d in ticked.done] != stood
        for p, fork in enumerate(now.forks if is_corrected or decision.begins_anew else ()):
            is_void = fork.first >= base.ends[p] or not before.forks or not before.forks[p].tuples
            require(is_void, "guesses count that were corrected, from", fork.first, "on, before", base.ends[p])
        for p, forked in enumerate(ticked.forked):
            if forked is not None:
                self._check_fork(p, forked, base, ticked.done[p].standing)
                self.anew += decision.begins_anew
                is_begun = before.forks and not decision.begins_anew
                come = [ticked.done[p].standing.stands.bound, before.forks[p].bound if is_begun else None]
                began = forked.began.bound
                again = [bound for bound in come if bound is not None and (began is None or bound > began)]
                require(not again, "a fork says again what came before", again, "it begins at", forked.began)
            elif not now.forks or now.forks[p].bound is None:
                self.forks[p] = None

    def _held(self, p: int, forked: Forked, base: LogState, now: Standing) -> list[Place] | None:
        """What a fork holds after a step, in which the stable lineage has come to a standing; None if unknown."""
        source, own, bound, without = self._source, self.forks[p], forked.standing.bound, self._world.unreachable
        if forked.is_anew:
            stands = base.standings[p].stands.bound if base.standings else None
            return source.there(p, None, stands, frozenset()) + source.there(p, stands, bound, without)
        return None if own is None else own + source.there(p, forked.began.bound, bound, without)

    def _silent(self, p: int, own: list[Place], began: int | None) -> list[Place]:
        """What a fork took in before it began to guess."""
        return [one for one in own if began is not None and one.time < began]

    def _count(self, p: int, own: list[Place]) -> int:
        """How many tuples a fork counts that holds these."""
        return len(own)

    def _check_fork(self, p: int, forked: Forked, base: LogState, now: Standing) -> None:
        output, bound = self._world.output, forked.standing.bound
        self.forks[p] = own = self._held(p, forked, base, now)
        self.tentative += forked.results
        self.guessed_of += sum(self._source.is_guess(p, one) for one in own or ())
        if own is None:
            return
        count = self._count(p, own)
        require(count == forked.standing.ordinal, "a fork has", forked.standing.ordinal, "tuples of", count)
        known = self._results(p, self._silent(p, own, forked.began.bound), forked.began.bound)
        right = self._results(p, own, bound).slice(len(known))
        names = list(output.spec.columns)
        tables = [output.read_block(block).select(names) for block in forked.blocks]
        found = bits(pa.concat_tables([output.spec.arrow.empty_table(), *tables]))
        require(found.equals(right.combine_chunks()), "a fork says", found.to_pylist(), "and not", right.to_pylist())

    def _results(self, p: int, taken: list[Place], bound: int | None) -> pa.Table:
        """What the operator makes of these; a fork that goes on is asked for what it had made before, once more."""
        last, found = self._last[p]
        if last != (taken, bound):
            found = self._operator.expected(self._placed(p, taken), bound).results
            self._last[p] = ((taken, bound), found)
        return found

    def _placed(self, p: int, taken: list[Place]) -> Placed:
        """These tuples as the operator takes them in."""
        return self._source.placed(p, taken)

    def _all(self, p: int) -> list[Place]:
        """All results of the inputs, in the order in which the stable lineage takes them in."""
        return self._source.there(p, None, END_OF_TIME, frozenset())

    def waiting(self, p: int, until: int | None) -> list[Place]:
        """What is there before a time, and not in the stable lineage."""
        standings = self._world.output.state.standings
        return self._source.there(p, standings[p].stands.bound if standings else None, until, frozenset())

    def check_counted(self) -> None:
        """What counts is what an undo has left (3); where it must be so, there is nothing tentative (6)."""
        world, log, outage = self._world, self._world.output, self._world.outage
        for p in range(world.partitions):
            if log.state.starts[p]:
                continue  # who reads it needs it no more, and has dropped the beginning
            told = [row for table in changes(log, p, columns=[log.spec.time]) for row in table.to_pylist()]
            stable, tentative = counted(Entry(row["_kind"], row) for row in told)
            if world.never_guesses:
                require(len(stable) == len(told), "there is something tentative, and should not be")
            fork = outage.forks[p] if outage.forks else ForkStanding(None, 0, None, 0)
            require(len(tentative) == fork.tuples, "another number counts")
            latest = max((row[log.spec.time] for row in tentative), default=None)
            require(latest == fork.latest, "the latest is at", latest, "and not", fork.latest)
            boundary = log.state.boundaries[p]
            ahead = [row for row in tentative if boundary is None or row[log.spec.time] >= boundary]
            read = [row for table in with_tentative(log, p, [log.spec.time]) for row in table.to_pylist()]
            for rows, is_tentative in ((stable, False), (ahead, True)):
                found = [row["_offset"] for row in read if row["_tentative"] is is_tentative]
                require(found == [row["_offset"] for row in rows], "readers get", found, "of", rows)

    def check_end(self, log: Log) -> None:
        """Stable results are those of a run in which nothing failed (1), and there are no others (2)."""
        self.check_counted()
        require(self._world.outage.state == "STABLE", "all is over, and it is", self._world.outage)
        for p in range(self._world.partitions):
            right = self._operator.expected(self._placed(p, self._all(p)), END_OF_TIME).results
            found, all_ = published_results(log, p), len(right)
            if log.state.starts[p]:
                right = right.slice(all_ - len(found))
            require(found.equals(right), "partition", p, "has", found.to_pylist(), "and not", right.to_pylist())
            read = [row for table in with_tentative(log, p, []) for row in table.to_pylist()]
            require(len(read) == len(found) and not any(row["_tentative"] for row in read), "something is tentative")
            require(log.state.standings[p].results == all_, "results are not counted right")
