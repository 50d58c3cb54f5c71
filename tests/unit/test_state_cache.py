"""The state cache gives back the state of the attempt that was asked for, or nothing: never anything else."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from strandline.errors import UnsafeFolderError
from strandline.operators.aggregate.aggregate_operator import AggregateOperator
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.open_windows import window_state
from strandline.operators.open_windows.arrays import State
from strandline.operators.open_windows.record import BYTES_END, FREE_HEAD, QUEUE_TAIL, TIMERS, USED, N
from strandline.operators.open_windows.window_state import WindowState
from strandline.operators.operator import Limits, StateImage
from strandline.running.state import boot, state_cache, state_file
from strandline.running.state.state_cache import StateCache
from tests.support.machine import patience
from tests.support.operator_streams import PLANS, Row, Tuples, rows_table, windows_of

every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
COUNT = PLANS["tumbling count"]
STRINGS = PLANS["tumbling count, strings"]


class Chain:
    """Attempts that follow each other, with an operator that never crashed beside them."""

    def __init__(self, folder: Path, plan: AggregateDefinition, keys: int = 40, seed: int = 1) -> None:
        self.folder = folder
        self.plan = plan
        self.truth = plan.fresh()
        self.tuples = Tuples(Random(seed), keys=keys)
        self.rows: list[Row] = []
        self.written = 0
        self.limits = Limits(extent=100)
        self.last = ""
        self.sizes: list[int] = []

    def cache(self) -> StateCache:
        return StateCache(self.folder)

    def open(self, attempt: str | None = None, cache: StateCache | None = None) -> WindowState | None:
        attempt = self.last if attempt is None else attempt
        arrays = (cache or self.cache()).open(attempt)
        try:
            return None if arrays is None else self.plan.revived(arrays).state
        except ValueError:
            return None

    def step(self, attempt: str, *, rows: int = 60, accepted: bool = True, whole: bool = False) -> None:
        """One attempt at the next step; only one that is accepted counts."""
        cache = self.cache()
        if not self.last:
            state = WindowState.empty(self.plan.width, self.plan.layout, timed=self.plan.window.has_times)
        else:
            found = self.open(cache=cache)
            assert found is not None, "the state should be here"
            state = found
        operator = AggregateOperator(self.plan, state)
        more = self.tuples.rows(rows)
        self._work(operator, more)
        self.sizes.append(cache.leave(attempt, self.last, operator.image(), whole=whole or not self.last))
        if accepted:
            self._work(self.truth, more)
            self.rows += more
            self.written += 10_000
            self.last = attempt

    def _work(self, operator: AggregateOperator, more: list[Row]) -> None:
        operator.begin()
        first = len(self.rows)
        for _ in operator.feed([rows_table(more, first)]):
            pass
        if self.plan.window.has_times:
            operator.advance(more[-1]["t"] - 8)
        operator.save(self.written, self.limits)

    def check(self) -> None:
        """The state of the last accepted attempt is here, and it is the true one, as another process finds it."""
        state_file._believed.clear()
        cache = self.cache()
        state = self.open(cache=cache)
        assert state is not None, "the state should be here"
        self.check_is_true(state)
        cache.close()

    def check_is_true(self, state: WindowState) -> None:
        assert windows_of(self.plan, state) == windows_of(self.plan, self.truth.state)
        np.testing.assert_array_equal(state.arrays.header, self.truth.state.arrays.header)


@pytest.fixture(autouse=True)
def _one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """States of the same tuples are compared array by array."""
    monkeypatch.setattr(window_state, "new_seed", lambda: 7)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path / "p00000", COUNT)


# ---------------------------------------------------------------------- from batch to batch


@every_plan
@pytest.mark.parametrize("keys", [6, 400], ids=["few windows", "so many that arrays grow"])
def test_each_batch_finds_the_state_that_the_last_one_left(
    plan: AggregateDefinition, keys: int, tmp_path: Path
) -> None:
    chain = Chain(tmp_path / "p", plan, keys)
    for i in range(12):
        chain.step(f"a{i}", rows=80, whole=i == 7)
        chain.check()
        chain.check()  # looking changes nothing
    kinds = {path.suffix for path in chain.folder.iterdir()}
    assert kinds <= {"", ".delta", ".whole"}


def test_nothing_is_found_before_anything_was_left(tmp_path: Path) -> None:
    assert StateCache(tmp_path / "nowhere").open("a0") is None


@pytest.mark.parametrize("way", ["../elsewhere/a0", "x/../../elsewhere/a0"])
def test_the_name_of_an_attempt_leads_to_no_other_folder(tmp_path: Path, way: str) -> None:
    (tmp_path / "here" / "x").mkdir(parents=True)
    elsewhere = Chain(tmp_path / "elsewhere", COUNT)
    elsewhere.step("a0")
    here = StateCache(tmp_path / "here")
    assert here.open(way) is None
    assert here.open_over(way, here) is None
    elsewhere.check()


def test_what_was_opened_can_be_changed_without_changing_it_for_others(chain: Chain) -> None:
    chain.step("a0")
    chain.check()
    cache = chain.cache()
    state = chain.open(cache=cache)
    assert state is not None
    state.arrays.records[:] = 77
    state.arrays.header[:] = 77
    cache.close()
    chain.check()


def test_a_delta_is_of_the_size_of_what_was_touched_and_not_of_the_state(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "p", COUNT, keys=20_000)
    chain.limits = Limits()  # a G-check touches a window, too
    chain.step("a0", rows=60_000)
    chain.step("a1", rows=60)
    chain.step("a2", rows=60)
    chain.step("a3", rows=6_000)
    whole, small, also_small, large = chain.sizes
    assert whole > 1_000_000
    touched = 8 * (chain.plan.width + 20)
    assert small < 60 * touched + 2_000
    assert also_small < 60 * touched + 2_000
    assert 20 * also_small < large < 6_000 * touched < whole
    chain.check()


def test_a_delta_of_strings_holds_the_new_bytes_alone(tmp_path: Path) -> None:
    chain = Chain(tmp_path / "p", STRINGS, keys=2_000)
    chain.limits = Limits()
    chain.step("a0", rows=4_000)
    chain.step("a1", rows=30)
    chain.check()
    chain.step("a2", rows=30)
    chain.check()
    assert chain.sizes[2] < chain.sizes[0] / 5


def test_the_folder_does_not_grow(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_cache, "_KEEP_S", -1.0)
    for i in range(30):
        chain.step(f"zombie{i}", accepted=False) if i else None
        chain.step(f"a{i}")
    assert len(list(chain.folder.iterdir())) <= 4
    chain.check()


# ---------------------------------------------------------------------- attempts that do not count


@pytest.mark.parametrize("whole", [False, True], ids=["delta", "whole"])
def test_what_an_attempt_leaves_that_was_not_accepted_is_never_applied(chain: Chain, whole: bool) -> None:
    chain.step("a0")
    for i in range(1, 5):
        chain.step(f"zombie{i}", accepted=False, whole=whole)
        chain.step(f"a{i}")
        chain.step(f"late{i}", rows=5, accepted=False, whole=whole)
        chain.check()


def test_of_two_attempts_at_one_batch_the_accepted_one_counts(chain: Chain) -> None:
    chain.step("a0")
    before = chain.cache()
    speculative = chain.open("a0", before)
    assert speculative is not None
    chain.step("a1")
    other = AggregateOperator(chain.plan, speculative)
    other.begin()
    for _ in other.feed([rows_table(chain.tuples.rows(99), 60)]):
        pass
    before.leave("b1", "a0", other.image())
    chain.check()
    assert chain.open("b1") is None, "its parent is gone, so it can not be had any more"
    chain.check()


def test_an_attempt_of_the_past_finds_nothing(chain: Chain) -> None:
    for i in range(4):
        chain.step(f"a{i}")
        chain.check()
    for attempt in ("a0", "a1", "a2", "a4", ""):
        assert chain.open(attempt) is None
    chain.check()


def test_a_stale_base_finds_nothing(chain: Chain) -> None:
    chain.step("a0")
    chain.check()
    old = (chain.folder / "base").read_bytes()
    chain.step("a1")
    chain.check()
    chain.step("a2")
    (chain.folder / "base").write_bytes(old)  # a0, and the delta from a1 to a2
    assert chain.open("a2") is None
    assert chain.open("a1") is None
    assert chain.open("a0") is not None


# ---------------------------------------------------------------------- files that are not as they were left


def damages() -> dict[str, Callable[[bytes], bytes]]:
    return {
        "empty": lambda data: b"",
        "its first byte": lambda data: data[:1],
        "half a page": lambda data: data[:2048],
        "its first page": lambda data: data[:4096],
        "cut in the middle": lambda data: data[: len(data) // 2],
        "cut at the end": lambda data: data[:-1],
        "zeros": lambda data: bytes(len(data)),
        "garbage": lambda data: Random(5).randbytes(len(data)),
        "a garbled head": lambda data: data[:100] + b"?" + data[101:],
        "text": lambda data: b'{"format":1}\n' * 400,
    }


@pytest.mark.parametrize("damage", damages().values(), ids=damages())
@pytest.mark.parametrize("kind", ["base", "whole", "delta"])
def test_a_damaged_file_gives_nothing(chain: Chain, kind: str, damage: Callable[[bytes], bytes]) -> None:
    chain.step("a0")
    if kind != "whole":
        chain.check()
    if kind == "delta":
        chain.step("a1")
    path = chain.folder / {"base": "base", "whole": "a0.whole", "delta": "a1.delta"}[kind]
    path.write_bytes(damage(path.read_bytes()))
    assert chain.open() is None
    assert chain.open() is None


@every_plan
def test_a_state_with_one_wrong_bit_gives_nothing(plan: AggregateDefinition, tmp_path: Path) -> None:
    """Wherever it is: compiled code follows what stands there without a question."""
    chain = Chain(tmp_path / "p", plan)
    chain.step("a0")
    chain.check()
    chain.step("a1")
    chain.check()  # a delta was redone in it
    good = (chain.folder / "base").read_bytes()
    cache = chain.cache()
    state = chain.open(cache=cache)
    assert state is not None
    arrays = {name: data for name in State._fields if (data := getattr(state.arrays, name).tobytes())}
    cache.close()
    del state
    rng = Random(7)
    for name, data in arrays.items():
        at = good.index(data)
        for place in (0, len(data) - 1, rng.randrange(len(data))):
            bad = bytearray(good)
            bad[at + place] ^= 1 << rng.randrange(8)
            (chain.folder / "base").write_bytes(bad)
            state_file._believed.clear()
            assert chain.open() is None, (name, place)
    (chain.folder / "base").write_bytes(good)
    chain.check()


def test_a_process_reads_a_state_whole_once_and_not_with_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = Chain(tmp_path / "p", COUNT, keys=2_000)
    chain.step("a0", rows=6_000)
    chain.check()
    summed: list[int] = []
    checksum = state_file.checksum
    monkeypatch.setattr(state_file, "checksum", lambda array: summed.append(array.nbytes) or checksum(array))
    for i in range(1, 4):
        chain.step(f"a{i}")
    assert summed == [], "what a delta touches, and nothing else"
    chain.check()
    assert max(summed) > 100_000


@pytest.mark.parametrize("word", [N, USED, FREE_HEAD, QUEUE_TAIL, TIMERS, BYTES_END])
@pytest.mark.parametrize("value", [-2, 1 << 40])
def test_a_header_that_leads_out_of_the_arrays_gives_nothing(chain: Chain, word: int, value: int) -> None:
    chain.step("a0")
    image = chain.truth.image()
    image.arrays["header"][word] = value
    chain.cache().leave("a1", "a0", image, whole=True)
    assert chain.open("a1") is None


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9, 0.999])
def test_a_delta_with_one_wrong_bit_gives_nothing(chain: Chain, place: float) -> None:
    chain.step("a0")
    chain.check()
    chain.step("a1")
    path = chain.folder / "a1.delta"
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 4
    path.write_bytes(data)
    assert chain.open() is None


@pytest.mark.parametrize("missing", ["base", "a1.delta"])
def test_a_missing_file_gives_nothing(chain: Chain, missing: str) -> None:
    chain.step("a0")
    chain.check()
    chain.step("a1")
    (chain.folder / missing).unlink()
    assert chain.open() is None


def test_after_damage_a_whole_state_sets_it_right(chain: Chain) -> None:
    chain.step("a0")
    chain.check()
    (chain.folder / "base").write_bytes(b"garbage")
    assert chain.open() is None
    chain.cache().leave("a1", "a0", chain.truth.image(), whole=True)
    chain.last = "a1"
    chain.check()
    chain.step("a2")
    chain.check()


def test_a_state_of_another_life_of_the_machine_is_not_used(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.step("a0")
    chain.check()
    chain.step("a1")
    with monkeypatch.context() as patch:
        patch.setattr(boot, "boot", lambda: "another boot")
        assert chain.open("a0") is None
        assert chain.open("a1") is None
    chain.check()


def test_a_delta_of_another_life_of_the_machine_is_not_used(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.step("a0")
    chain.check()
    with monkeypatch.context() as patch:
        patch.setattr(state_file, "boot", lambda: "another boot")
        chain.step("a1")
    assert chain.open("a1") is None
    assert chain.open("a0") is not None


def test_a_state_of_another_format_is_not_used(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.step("a0")
    chain.check()
    monkeypatch.setattr(state_file, "FORMAT", state_file.FORMAT + 1)
    assert chain.open() is None


def test_a_state_of_other_sources_is_not_used(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the words of a record mean is theirs."""
    chain.step("a0")
    chain.check()
    chain.step("a1")
    with monkeypatch.context() as patch:
        patch.setattr(state_file, "source_stamp", lambda: "other sources")
        assert chain.open("a0") is None
        assert chain.open("a1") is None
    chain.check()


def test_a_state_of_another_width_is_not_used(chain: Chain) -> None:
    chain.step("a0")
    arrays = chain.cache().open("a0")
    assert arrays is not None
    with pytest.raises(ValueError, match="another state"):
        PLANS["session"].revived(arrays)
    chain.check()


def test_a_disk_that_cannot_be_written_costs_only_the_next_batch_a_recovery(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain.step("a0")
    chain.check()

    def full(*_: object) -> int:
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(state_file, "write_changes", full)
        patch.setattr(state_file, "write_whole", full)
        chain.step("a1")
    assert chain.sizes[-1] == 0
    assert chain.open() is None


# ---------------------------------------------------------------------- arrays of any operator

RUNS = {
    "one run": [*range(3, 9)],
    "two runs": [0, 1, 2, 37, 38, 39],
    "many": [*range(0, 40, 2)],
    "none": [],
    "all": [*range(40)],
}


@pytest.mark.parametrize("rows", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize(("shape", "dtype"), [((40, 512), np.uint8), ((40, 5), np.int64), ((40,), np.int64)])
def test_another_process_believes_what_was_redone(
    tmp_path: Path, rows: list[int], shape: tuple[int, ...], dtype: type[np.generic]
) -> None:
    rng = np.random.default_rng(5)
    arrays = {"payloads": rng.integers(0, 255, shape).astype(dtype), "header": np.arange(16)}
    cache = StateCache(tmp_path / "p00000")
    cache.leave("a0", "", StateImage(arrays, None))
    assert cache.open("a0") is not None
    changed = np.array(rows, np.int64)
    arrays["payloads"][changed] = rng.integers(0, 255, arrays["payloads"][changed].shape).astype(dtype)
    arrays["header"][3:7] += 1
    cache.leave("a1", "a0", StateImage(arrays, {"payloads": changed, "header": slice(3, 7)}))
    state_file._believed.clear()
    found = cache.open("a1")
    assert found is not None, "it takes its own changes for rot"
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


# ---------------------------------------------------------------------- redoing that is cut short


class CutShort(BaseException):
    """The process is killed here."""


@pytest.mark.parametrize("place", ["before it", "in the middle", "before it is said to be done"])
def test_a_redoing_that_was_cut_short_is_not_used(chain: Chain, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    chain.step("a0")
    chain.check()
    chain.step("a1")
    heads, write_head, apply = iter(range(9)), state_file.write_head, state_file.apply

    def cut_head(descriptor: int, head: Mapping[str, Any]) -> None:
        if next(heads) == (0 if place == "before it" else 1):
            raise CutShort
        write_head(descriptor, head)

    def cut_apply(descriptor: int, head: Mapping[str, Any], changes: state_file.Changes) -> dict[str, int]:
        if place == "in the middle":
            apply(descriptor, head, changes[: len(changes) // 2])
            raise CutShort
        return apply(descriptor, head, changes)

    with monkeypatch.context() as patch:
        patch.setattr(state_file, "write_head", cut_head)
        patch.setattr(state_file, "apply", cut_apply)
        with pytest.raises(CutShort):
            chain.open()
    if place == "before it":  # nothing has happened: it can be done again
        chain.check()
    else:
        assert chain.open("a1") is None
        assert chain.open("a0") is None


# ---------------------------------------------------------------------- others at the same time


def test_a_frozen_reader_costs_a_recovery_and_nobody_harm(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_cache, "_PATIENCE_S", 0.05)
    chain.step("a0")
    frozen = chain.cache()
    held = chain.open(cache=frozen)
    assert held is not None
    before = windows_of(chain.plan, held)
    chain.step("a1")
    assert chain.open() is None, "the arrays were changed under the eyes of somebody who reads them"
    assert windows_of(chain.plan, held) == before
    # The batch recovers from the log and leaves a whole state: the frozen one keeps its own file.
    chain.cache().leave("a2", "a1", chain.truth.image(), whole=True)
    chain.last = "a2"
    chain.check()
    chain.step("a3")
    chain.check()
    assert windows_of(chain.plan, held) == before
    frozen.leave("late", "a0", held.image())
    chain.check()
    chain.step("a4")
    chain.check()


def test_a_reader_that_lets_go_in_time_costs_nothing(chain: Chain) -> None:
    chain.step("a0")
    slow = chain.cache()
    assert chain.open(cache=slow) is not None
    chain.step("a1")
    timer = threading.Timer(0.1, slow.close)
    timer.start()
    chain.check()
    timer.join()


def test_closing_lets_others_redo_though_somebody_still_refers_to_the_arrays(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cache, "_PATIENCE_S", 0.05)
    chain.step("a0")
    cache = chain.cache()
    held = chain.open(cache=cache)
    assert held is not None
    cache.close()
    chain.step("a1")
    chain.check()
    assert held.arrays is not None


def test_leaving_lets_others_redo_though_somebody_still_refers_to_the_arrays(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error with a traceback, for example, keeps an operator alive for longer than anybody needs it."""
    monkeypatch.setattr(state_cache, "_PATIENCE_S", 0.05)
    chain.step("a0")
    cache = chain.cache()
    held = chain.open(cache=cache)
    assert held is not None
    cache.leave("zombie", "a0", held.image())
    chain.step("a1")
    chain.check()
    assert held.arrays is not None


def test_two_that_redo_at_the_same_time_both_find_the_state_or_nothing(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cache, "_PATIENCE_S", 0.1)
    chain.step("a0")
    chain.check()
    for i in range(1, 20):
        chain.step(f"a{i}")
        caches = [chain.cache() for _ in range(4)]
        with ThreadPoolExecutor(len(caches)) as pool:
            found = list(pool.map(lambda cache: chain.open(cache=cache), caches))
        assert any(state is not None for state in found)
        for state in found:
            if state is not None:
                chain.check_is_true(state)
        for cache in caches:
            cache.close()
        chain.check()


@pytest.mark.parametrize("kind", ["whole", "delta"])
def test_who_redoes_second_finds_what_the_first_has_redone(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    chain.step("a0")
    chain.step("a1", whole=kind == "whole")
    owner, name = (os, "replace") if kind == "whole" else (state_file, "read_changes")
    usual = getattr(owner, name)
    faster: list[bool] = []

    def overtaken(*arguments: Any) -> Any:
        if not faster and str(arguments[0]).endswith(f"a1.{kind}"):
            faster.append(True)
            cache = chain.cache()
            assert chain.open(cache=cache) is not None
            cache.close()
        return usual(*arguments)

    monkeypatch.setattr(owner, name, overtaken)
    found = chain.open()
    assert faster
    assert found is not None
    chain.check_is_true(found)


FROZEN = """
import fcntl, os, signal, sys
from pathlib import Path
from strandline.running.state.state_cache import StateCache

folder, attempt, place = sys.argv[1:]
flock = fcntl.flock

def stopping(descriptor, kind):
    if kind & fcntl.LOCK_EX:
        flock(descriptor, kind)
        fcntl.flock = stopping_at_the_end
        if place == "begun":
            os.kill(os.getpid(), signal.SIGSTOP)
    else:
        flock(descriptor, kind)

def stopping_at_the_end(descriptor, kind):
    fcntl.flock = flock
    if place == "done":
        os.kill(os.getpid(), signal.SIGSTOP)
    flock(descriptor, kind)

fcntl.flock = stopping
StateCache(Path(folder)).open(attempt)
"""


@pytest.mark.parametrize("place", ["begun", "done"])
def test_a_process_frozen_while_it_redoes_costs_a_recovery_and_can_do_no_harm_later(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(state_cache, "_PATIENCE_S", 0.2)
    chain.step("a0")
    chain.check()
    chain.step("a1")
    arguments = [str(chain.folder), "a1", place]
    frozen = subprocess.Popen([sys.executable, "-c", FROZEN, *arguments])
    try:
        _, status = os.waitpid(frozen.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it should have stopped with the lock in its hand"
        assert chain.open() is None, "somebody else holds the lock"
        # The batch recovers from the log, and the next ones go on in a file of their own.
        chain.cache().leave("a2", "a1", chain.truth.image(), whole=True)
        chain.last = "a2"
        chain.check()
        chain.step("a3")
        chain.check()
        chain.step("a4")
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
        assert frozen.wait(patience(60)) == 0
    chain.check()
    chain.step("a5")
    chain.check()


# ---------------------------------------------------------------------- whose it is


def test_folder_and_files_are_closed_to_others(chain: Chain) -> None:
    os.umask(previous := os.umask(0))
    try:
        os.umask(0)
        chain.step("a0")
        chain.check()
        chain.step("a1")
        chain.step("a2", whole=True, accepted=False)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(chain.folder.stat().st_mode) == 0o700
    files = list(chain.folder.iterdir())
    assert {path.suffix for path in files} == {"", ".whole"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_folder_of_our_own_that_others_could_enter_is_closed(chain: Chain) -> None:
    chain.folder.mkdir(mode=0o755)
    chain.step("a0")
    chain.check()
    assert stat.S_IMODE(chain.folder.stat().st_mode) == 0o700


def test_a_folder_of_somebody_else_is_refused(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.step("a0")
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(UnsafeFolderError, match="belongs to user") as caught:
        chain.cache()
    assert caught.value.where == str(chain.folder)
    assert "STRANDLINE_STATE_DIR" in caught.value.todo


@pytest.mark.parametrize("leads", ["to a folder", "nowhere"])
def test_a_link_in_the_place_of_the_folder_is_refused(chain: Chain, tmp_path: Path, leads: str) -> None:
    if leads == "to a folder":
        (tmp_path / "target").mkdir(mode=0o700)
    chain.folder.symlink_to(tmp_path / "target")
    with pytest.raises(UnsafeFolderError, match="link"):
        chain.cache()


@pytest.mark.parametrize("how", ["a link", "written by others", "of somebody else"])
@pytest.mark.parametrize("name", ["base", "a1.delta"])
def test_a_file_that_may_not_be_ours_is_not_used(
    chain: Chain, monkeypatch: pytest.MonkeyPatch, name: str, how: str
) -> None:
    chain.step("a0")
    chain.check()
    chain.step("a1")
    path = chain.folder / name
    if how == "a link":
        path.rename(chain.folder.parent / "moved")
        path.symlink_to(chain.folder.parent / "moved")
    elif how == "written by others":
        path.chmod(0o620)
    elif os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        pytest.skip("only root can give a file away")
    assert chain.open() is None
