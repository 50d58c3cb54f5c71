"""Recovery of one partition from the logs alone: load the eventual checkpoint, replay the input since."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from strandline.clock import stopwatch_s
from strandline.errors import CorruptBlockError, CorruptManifestError, TruncatedError
from strandline.failpoint import failpoint
from strandline.log.log import Log
from strandline.log.standing import Standing
from strandline.operators.kernel_cache import TALLY
from strandline.operators.operator import Definition, OnError, Operator
from strandline.recovery import eventual_checkpoint
from strandline.recovery.intake import Intake, Stretch
from strandline.wording import plural


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a recovery did and what it cost."""

    open_windows: int
    extent: int
    replayed: int
    read: int
    """Input tuples that were read for it: of several inputs, also some before the first that was replayed."""
    load_s: float
    replay_s: float
    is_older: bool = False
    """Whether the checkpoint that the manifest speaks of was not there, and an older one had to do."""
    open_s: float = 0.0
    """Opening the two logs."""
    kernels_s: float = 0.0
    """Loading kernels, or compiling them; not part of the others."""


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
        """Where it stands in what was published."""
        state = output.state
        return cls(partition, state.standings[partition], state.ends[partition], state.boundaries[partition])


def recover(
    output: Log, intake: Intake, definition: Definition, stand: Stand, on_error: OnError = "stop"
) -> tuple[Operator, Recovery]:
    """The operator as it stood, from its output and what it takes in alone, and what that took."""
    partition, standing = stand.partition, stand.standing
    began_s, kernels_s = stopwatch_s(), TALLY.seconds
    found = _checkpoint(output, definition, stand)
    operator = found.operator
    failpoint("during-recovery")
    loaded_s, kernels_loaded_s = stopwatch_s(), TALLY.seconds
    first = operator.input_end = found.standing.oldest if not standing.lets_go else standing.input
    begin = found.standing.replays_from.ordinal if not standing.lets_go else standing.input
    if found.standing.mode == "eventual":
        for piece in intake.again(Stretch.replayed(partition, found.standing), operator.rows_at_once):
            operator.replay(piece.tables)
        operator.input_end = found.standing.input
    repeat(operator, intake, Stretch.since(partition, found.standing, standing, stand.boundary))
    if not standing.lets_go and operator.open_windows != standing.open:
        raise CorruptManifestError(
            f"{plural(operator.open_windows, 'open window')} after replay, the manifest says {standing.open:,}",
            where=f"{output.storage.url}, partition {partition}",
            todo="run `strandline verify` on the stream and on its input",
        )
    done = Recovery(
        operator.open_windows,
        found.standing.extent if not standing.lets_go else 0,
        standing.input - first,
        standing.input - begin,
        max(0.0, loaded_s - began_s - (kernels_loaded_s - kernels_s)),
        max(0.0, stopwatch_s() - loaded_s - (TALLY.seconds - kernels_loaded_s)),
        found.standing is not standing,
        kernels_s=TALLY.seconds - kernels_s,
    )
    operator.on_error = on_error
    return operator, done


def repeat(operator: Operator, intake: Intake, stretch: Stretch) -> None:
    """Repeats the steps since a checkpoint of the whole state: windows that opened since have no footprint."""
    has_times = operator.definition.has_times
    for piece in intake.again(stretch, operator.rows_at_once):
        operator.repeat(piece.tables)
        if piece.boundary is not None and has_times:
            operator.advance(piece.boundary)
    operator.input_end = stretch.end.ordinal
    if has_times and stretch.boundary is not None:
        operator.advance(stretch.boundary)  # it may have moved without a tuple


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The operator as footprints have it, and the standing that says which."""

    operator: Operator
    standing: Standing


def _checkpoint(output: Log, definition: Definition, stand: Stand) -> _Checkpoint:
    try:
        return _load(output, definition, stand)
    except (CorruptManifestError, CorruptBlockError, TruncatedError):
        older = _older_checkpoint(output, definition, stand)
        if older is None:
            raise
        return older


def _load(output: Log, definition: Definition, stand: Stand) -> _Checkpoint:
    # What was set aside when it came first is left out again, whatever is to be done about what comes next.
    operator = eventual_checkpoint.load(output, definition, stand.partition, stand.standing, stand.end, "set_aside")
    return _Checkpoint(operator, stand.standing)


_TRIES_MAX = 64
"""A checkpoint reaches back some batches; one that is this far back would have to be replayed from for long."""


def _older_checkpoint(output: Log, definition: Definition, stand: Stand) -> _Checkpoint | None:
    """The newest checkpoint before the one of this standing that is really there; None if there is none.

    A block that holds footprints may be rotten, and early versions could publish a standing whose checkpoint had not
    been written, or not been kept. Older commits know of older checkpoints: a longer replay, if the input holds it.
    """
    partition, tried = stand.partition, {_place(stand)}
    for m in output.before(output.state.seq + 1):
        if m.kind != "append" or not m.standings:
            continue
        older = Stand(partition, m.standings[partition], m.ends[partition])
        if older.standing.input > stand.standing.input or older.end > stand.end:
            continue  # others have gone on since: this attempt is not the newest
        if older.standing.lets_go:
            return None
        if older.end - older.standing.extent < output.state.starts[partition]:
            return None  # from here on back all is gone
        place = _place(older)
        if place not in tried:
            if len(tried) > _TRIES_MAX:
                return None
            tried.add(place)
            with contextlib.suppress(CorruptManifestError, CorruptBlockError):
                return _load(output, definition, older)
    return None


def _place(stand: Stand) -> tuple[int, ...]:
    """What tells a checkpoint from others: a whole one is the same until the next, an eventual one grows."""
    place = (stand.standing.oldest, stand.end - stand.standing.extent)
    return place if stand.standing.mode == "instant" else (*place, stand.end)
