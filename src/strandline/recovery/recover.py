"""Recovery of one partition from the logs alone: load the eventual checkpoint, replay the input since."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from strandline.clock import stopwatch_s
from strandline.errors import CorruptManifestError, TruncatedError
from strandline.failpoint import failpoint
from strandline.log.log import Log
from strandline.log.standing import Standing
from strandline.operators.kernel_cache import TALLY
from strandline.operators.operator import OnError, Operator
from strandline.operators.plan import Plan
from strandline.operators.window_state import WindowState
from strandline.recovery import eventual_checkpoint
from strandline.recovery.intake import pieces
from strandline.wording import plural


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a recovery did and what it cost."""

    open_windows: int
    extent: int
    replayed: int
    load_s: float
    replay_s: float
    is_older: bool = False
    """Whether the checkpoint that the manifest speaks of was not there, and an older one had to do."""
    open_s: float = 0.0
    """Opening the two logs."""
    kernels_s: float = 0.0
    """Loading kernels, or compiling them; not part of the others."""


def recover(
    output: Log,
    input_: Log,
    plan: Plan,
    partition: int,
    standing: Standing,
    end: int,
    boundary: int | None,
    on_error: OnError = "stop",
) -> tuple[Operator, Recovery]:
    """The operator as it stood: the output ended at `end` then, its windows were closed up to `boundary`."""
    began_s, kernels_s = stopwatch_s(), TALLY.seconds
    found = _checkpoint(output, plan, partition, standing, end)
    # What was set aside when it came first is left out again, whatever is to be done about what comes next.
    operator = Operator(plan, found.state, "set_aside")
    failpoint("during-recovery")
    loaded_s, kernels_loaded_s = stopwatch_s(), TALLY.seconds
    first = operator.input_end = found.standing.oldest if standing.mode != "none" else standing.input
    if found.standing.mode == "eventual":
        for piece in pieces(input_, plan, partition, first, found.standing.input, None, operator.rows_at_once):
            operator.replay(piece.tuples)
        operator.input_end = found.standing.input
    repeat(operator, input_, partition, standing.input, boundary)
    if standing.mode != "none" and operator.state.open_windows != standing.open:
        raise CorruptManifestError(
            f"{plural(operator.state.open_windows, 'open window')} after replay, the manifest says {standing.open:,}",
            where=f"{output.storage.url}, partition {partition}",
            todo="run `strandline verify` on the stream and on its input",
        )
    done = Recovery(
        operator.state.open_windows,
        found.standing.extent if standing.mode != "none" else 0,
        standing.input - first,
        max(0.0, loaded_s - began_s - (kernels_loaded_s - kernels_s)),
        max(0.0, stopwatch_s() - loaded_s - (TALLY.seconds - kernels_loaded_s)),
        found.standing is not standing,
        kernels_s=TALLY.seconds - kernels_s,
    )
    operator.on_error = on_error
    return operator, done


def repeat(operator: Operator, input_: Log, partition: int, end: int, boundary: int | None) -> None:
    """Repeats the steps since a checkpoint of the whole state: windows that opened since have no footprint."""
    plan = operator.plan
    for piece in pieces(input_, plan, partition, operator.input_end, end, boundary, operator.rows_at_once):
        for _ in operator.feed(piece.tuples):
            pass
        if piece.boundary is not None and plan.window.has_times:
            operator.close_until(piece.boundary)
    operator.input_end = end
    if plan.window.has_times and boundary is not None:
        operator.close_until(boundary)  # it may have moved without a tuple


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The windows as footprints have them, and the standing that says which."""

    state: WindowState
    standing: Standing


def _checkpoint(output: Log, plan: Plan, partition: int, standing: Standing, end: int) -> _Checkpoint:
    try:
        return _Checkpoint(eventual_checkpoint.load(output, plan, partition, standing, end), standing)
    except (CorruptManifestError, TruncatedError):
        older = _older_checkpoint(output, plan, partition, standing, end)
        if older is None:
            raise
        return older


def _older_checkpoint(output: Log, plan: Plan, partition: int, standing: Standing, end: int) -> _Checkpoint | None:
    """The newest checkpoint before the one of this standing that is really there; None if there is none.

    Early versions could publish a standing whose checkpoint had not been written, or not been kept. Older commits know
    of older checkpoints.
    """
    tried = {_place(standing, end)}
    for m in output.before(output.state.seq + 1):
        if m.kind != "append" or not m.standings:
            continue
        older, older_end = m.standings[partition], m.ends[partition]
        if older.input > standing.input or older_end > end:
            continue  # others have gone on since: this attempt is not the newest
        if older.mode == "none":
            return None
        if older_end - older.extent < output.state.starts[partition]:
            return None  # from here on back all is gone
        place = _place(older, older_end)
        if place not in tried:
            tried.add(place)
            with contextlib.suppress(CorruptManifestError):
                return _Checkpoint(eventual_checkpoint.load(output, plan, partition, older, older_end), older)
    return None


def _place(standing: Standing, end: int) -> tuple[int, ...]:
    """What tells a checkpoint from others: a whole one is the same until the next, an eventual one grows."""
    place = (standing.oldest, end - standing.extent)
    return place if standing.mode == "instant" else (*place, end)
