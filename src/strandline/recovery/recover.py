"""Recovery of one partition from the logs alone: load the eventual checkpoint, replay the input since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from strandline.checkpoint.saving import Sample
from strandline.clock import stopwatch_s
from strandline.errors import (
    CorruptBlockError,
    CorruptManifestError,
    StrandlineError,
    StreamMismatchError,
    TruncatedError,
)
from strandline.failpoint import failpoint
from strandline.inputs.input import Input, Piece, ReplayPlaces, Stretch
from strandline.log.operator_state.beginning import Beginning
from strandline.log.operator_state.input_mark import InputMark, Marks, Position
from strandline.log.operator_state.loss import Loss
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log
from strandline.operators.kernels.kernel_cache import TALLY
from strandline.operators.operator import Definition, OnError, Operator
from strandline.operators.versions import version_in
from strandline.recovery import eventual_checkpoint
from strandline.wording import plural

Again = Callable[[Stretch, int], Iterator[Piece]]
"""Yields tuples that were taken in before, see `Input.again`."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The outcome and the cost of a recovery."""

    open_windows: int
    extent: int
    replayed: int
    read: int
    """Input tuples that were read for it: of several inputs, also some before the first that was replayed."""
    load_s: float
    replay_s: float
    problem: str = ""
    """Why the checkpoint that the manifest speaks of could not be used, and an older one had to do; empty if it was."""
    open_s: float = 0.0
    """Opening the two logs."""
    kernels_s: float = 0.0
    """Loading kernels, or compiling them; not part of the others."""
    losses: tuple[Loss, ...] = ()
    """The input that was left out, by a recovery that does not replay."""
    aside: Mapping[str, Sequence[pa.Table]] = field(default_factory=dict)
    """Tuples and windows that are no results, by reason."""

    @property
    def costs(self) -> dict[str, float]:
        """The numbers of tuples, and the seconds of each part, as manifests and reports have them."""
        return {
            "extent": self.extent,
            "replayed": self.replayed,
            "read": self.read,
            "load_s": round(self.load_s, 4),
            "replay_s": round(self.replay_s, 4),
            "open_s": round(self.open_s, 4),
            "kernels_s": round(self.kernels_s, 4),
        }

    @property
    def samples(self) -> tuple[Sample, Sample]:
        """Its tuples of extent and of replay, and the seconds that each took."""
        return (self.extent, self.load_s), (self.read, self.replay_s)

    def to_json(self) -> dict[str, Any]:
        """Returns what a report of progress says of it."""
        return {
            "open_windows": self.open_windows,
            **self.costs,
            **({"problem": self.problem} if self.is_older else {}),
            **({"lost": [loss.text for loss in self.losses]} if self.losses else {}),
        }

    @property
    def is_older(self) -> bool:
        """True if it began with an older checkpoint than the manifest names."""
        return bool(self.problem)

    @property
    def is_other(self) -> bool:
        """True if the state differs from the one that the manifest describes, or is not saved where it says."""
        return self.is_older or bool(self.losses)


@dataclass(frozen=True, slots=True)
class Stand:
    """Where an operator stood in one partition, and its output with it."""

    partition: int
    standing: Standing
    end: int
    """Where the output ended."""
    boundary: int | None = None
    """The time up to which windows were closed."""

    @classmethod
    def of(cls, output: Log, partition: int) -> Stand:
        """Returns where it stands in what was published."""
        state, standing = output.state, output.state.standings[partition]
        closed = state.boundaries[partition] if standing.marks is None else standing.marks.stands.bound
        return cls(partition, standing, state.ends[partition], closed)

    def beginning(self, begins: Beginning | None) -> Standing:
        """Returns where the operator stood before its first batch, if its inputs still hold all that they had."""
        if self.standing.marks is None:
            first = 0 if begins is None else begins.first(self.partition)
            return Standing(input=first, commit=-1, open=0, oldest=first, extent=0, replay=0)
        begin = Position(0, None if begins is None else begins.time(self.partition))
        numbers = range(len(self.standing.marks.inputs))
        firsts = [0 if begins is None else begins.first(self.partition, number) for number in numbers]
        marks = Marks(begin, begin, tuple(InputMark(first, first) for first in firsts))
        return Standing(input=0, commit=-1, open=0, oldest=0, extent=0, replay=0, marks=marks)


def recover(
    output: Log,
    input_: Input,
    definition: Definition,
    stand: Stand,
    on_error: OnError = "stop",
    places: ReplayPlaces | None = None,
) -> tuple[Operator, Recovery]:
    """Returns the operator as it stood, from its output and its input alone, and what that took.

    Notes in `places` where a later replay can begin. It also replays for an operator that does not replay in a failure:
    users may look at its windows.
    """
    partition, standing = stand.partition, stand.standing
    began_s, kernels_s = stopwatch_s(), TALLY.seconds
    found = _checkpoint(output, definition, stand)
    if found.standing.oldest < standing.input:
        _require_same_version(output, definition, partition)
    operator = found.operator
    failpoint("during-recovery")
    loaded_s, kernels_loaded_s = stopwatch_s(), TALLY.seconds
    first = operator.input_end = found.standing.oldest
    begin = found.standing.replays_from.ordinal
    try:
        _take_in_again(found, _noting(input_, places or input_.edges()), stand)
    except TruncatedError as gone:
        raise (found.problem or gone) from gone
    if operator.open_windows != standing.open:
        raise CorruptManifestError(
            f"{plural(operator.open_windows, 'open window')} after replay, the manifest says {standing.open:,}",
            where=f"{output.storage.url}, partition {partition}",
            stream=output.storage.url,
            todo="run `strandline verify` on the stream and on its input",
        )
    done = Recovery(
        operator.open_windows,
        found.standing.extent,
        standing.input - first,
        standing.input - begin,
        max(0.0, loaded_s - began_s - (kernels_loaded_s - kernels_s)),
        max(0.0, stopwatch_s() - loaded_s - (TALLY.seconds - kernels_loaded_s)),
        str(found.problem or ""),
        kernels_s=TALLY.seconds - kernels_s,
    )
    operator.on_error = on_error
    return operator, done


def _require_same_version(output: Log, definition: Definition, partition: int) -> None:
    """Raises StreamMismatchError if tuples that another version has taken in would be replayed by this one."""
    taken_by, asked = version_in(output.spec.operator), version_in(definition.revised)
    if taken_by != asked and not definition.replays_versions:
        raise StreamMismatchError(
            f"the local state is lost, and tuples that version {taken_by} of the function has taken in would have to "
            f"be replayed by version {asked}",
            where=f"{output.storage.url}, partition {partition}",
            stream=output.storage.url,
            todo=f'run version {taken_by} once more, with checkpoint(sl.instant("1 ms")): its next batch saves every '
            f"key. Then start version {asked}",
        )


def _take_in_again(found: _Checkpoint, again: Again, stand: Stand) -> None:
    """Brings the operator of a checkpoint to where it stood."""
    operator, before = found.operator, found.standing
    operator.aside.ignore()
    if before.mode == "eventual":
        for piece in again(Stretch.replayed(stand.partition, before), operator.rows_at_once):
            operator.replay(piece.tables)
        operator.input_end = before.input
    repeat(operator, again, Stretch.since(stand.partition, before, stand.standing, stand.boundary))


def repeat(operator: Operator, again: Again, stretch: Stretch) -> None:
    """Repeats the steps since a checkpoint of the whole state: windows that opened since have no footprint."""
    operator.aside.ignore()
    has_times = operator.definition.has_times
    for piece in again(stretch, operator.rows_at_once):
        operator.repeat(piece.tables)
        if piece.boundary is not None and has_times:
            operator.advance(piece.boundary)
    operator.input_end = stretch.end.ordinal
    if has_times and stretch.boundary is not None:
        operator.advance(stretch.boundary)  # it may have moved without a tuple


def _noting(input_: Input, places: ReplayPlaces) -> Again:
    """Returns a reader of the input that notes the places at which a later replay can begin."""

    def again(stretch: Stretch, rows: int) -> Iterator[Piece]:
        places.begin(stretch.begin)
        for piece in input_.again(stretch, rows):
            yield piece
            places.passed(piece)

    return again


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The operator as footprints have it, and the standing that says which."""

    operator: Operator
    standing: Standing
    problem: StrandlineError | None = None
    """Why it is not the newest."""


def _checkpoint(output: Log, definition: Definition, stand: Stand) -> _Checkpoint:
    try:
        return _load(output, definition, stand)
    except (CorruptManifestError, CorruptBlockError, TruncatedError) as problem:
        older = _older_checkpoint(output, definition, stand, problem)
        if older is None:
            raise
        return replace(older, problem=problem)


def _load(output: Log, definition: Definition, stand: Stand) -> _Checkpoint:
    # What was set aside when it came first is left out again, whatever is to be done about what comes next.
    operator = eventual_checkpoint.load(output, definition, stand.partition, stand.standing, stand.end, "set_aside")
    return _Checkpoint(operator, stand.standing)


_TRIES_MAX = 64
"""A checkpoint reaches back some batches; one that is this far back would have to be replayed from for long."""


def _older_checkpoint(
    output: Log, definition: Definition, stand: Stand, problem: StrandlineError
) -> _Checkpoint | None:
    """Returns the newest checkpoint before the one of this standing that is still complete; None if there is none.

    A block that holds footprints may be rotten, and early versions could publish a standing whose checkpoint had not
    been written, or not been kept. Older commits know of older checkpoints: a longer replay, if the input holds it. At
    last there is the beginning, where nothing had to be kept.
    """
    partition, tried, rotten = stand.partition, {_place(stand)}, [*_rotten(problem)]
    for m in output.before(output.state.seq + 1):
        if not isinstance(m, AppendCommit) or not m.standings:
            continue
        older = Stand(partition, m.standings[partition], m.ends[partition])
        if older.standing.input > stand.standing.input or older.end > stand.end:
            continue  # others have gone on since: this attempt is not the newest
        if older.standing.lets_go or older.standing.losses != stand.standing.losses:
            return None  # what was lost since must not come back in a replay
        if not definition.replays_versions and version_in(m.revised) != version_in(definition.revised):
            return None
        first = older.end - older.standing.extent
        if first < output.state.starts[partition]:
            return None  # from here on back all is gone
        place = _place(older)
        if place in tried or any(first < end and begin < older.end for begin, end in rotten):
            continue
        if len(tried) > _TRIES_MAX:
            return None
        tried.add(place)
        try:
            return _load(output, definition, older)
        except (CorruptManifestError, CorruptBlockError) as another:
            rotten += _rotten(another)
    is_all_there = output.kept == 0 and stand.standing.losses is None
    is_whole = is_all_there and (definition.replays_versions or version_in(definition.revised) == 1)
    if not is_whole:
        return None
    return _Checkpoint(definition.fresh("set_aside"), stand.beginning(output.spec.begins))


def _rotten(problem: StrandlineError) -> Iterator[tuple[int, int]]:
    """Yields offsets over which no checkpoint may reach."""
    if isinstance(problem, CorruptBlockError) and problem.offsets is not None:
        yield problem.offsets


def _place(stand: Stand) -> tuple[int, ...]:
    """Returns the identity of a checkpoint: a whole one is the same until the next, an eventual one grows."""
    place = (stand.standing.oldest, stand.end - stand.standing.extent)
    return place if stand.standing.is_whole else (*place, stand.end)
