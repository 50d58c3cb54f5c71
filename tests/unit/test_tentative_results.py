"""Tentative tuples, undo and reconciliation in a log: who gets to see them, and what an append may say of them."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from strandline.cli.tail_changes import Chosen, show_changes
from strandline.errors import CorruptManifestError, FormatVersionError, StreamMismatchError, TruncatedError
from strandline.log.operator_state.outage import ForkStanding, Outage
from strandline.log.operator_state.standing import Standing
from strandline.log.reading import result_ordinals
from strandline.log.reading.result_ordinals import offset_of_result
from strandline.log.stream import commit_kinds, manifest
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import truncate
from tests.specification.plain_availability import Entry, counted
from tests.support.written_outage import STABLE, Output, fork, story


@pytest.mark.parametrize("is_compacted", [False, True])
def test_readers_get_results_and_whoever_asks_the_tentative_ones_that_count(is_compacted: bool) -> None:
    output = story()
    if is_compacted:
        assert compact(output.log, blocks_min=2).blocks_before == 9
    assert output.stable() == [10, 20]
    assert output.read() == [(10, False), (20, False), (40, True), (50, True)]


def test_what_the_manifests_say_counts_is_what_undo_has_left() -> None:
    output = story()
    told = output.told()
    assert [kind for kind, _ in told] == [
        *("stable", "tentative", "tentative", "undo", "stable", "tentative", "tentative")
    ]
    stable, tentative = counted(Entry(kind, end) for kind, end in told)  # type: ignore[arg-type]
    assert output.read() == [*((end, False) for end in stable), *((end, True) for end in tentative)]


def test_a_tentative_result_is_gone_when_the_stable_one_is_there() -> None:
    output = story()
    outage = output.log.state.outage
    output.append([(Kind.RESULT, 40)], outage, 41)
    assert output.read() == [(10, False), (20, False), (50, True), (40, False)]


def test_after_reconciliation_there_are_results_only() -> None:
    output = story()
    output.append([(Kind.RESULT, 30), (Kind.UNDO, 0), (Kind.REC_DONE, 0)], STABLE, 30)
    assert output.read() == [(10, False), (20, False), (30, False)]
    assert [kind for kind, _ in output.told()[-3:]] == ["stable", "undo", "rec_done"]
    assert output.log.state.standings[0].results == 3


def test_who_opens_the_stream_again_finds_the_same() -> None:
    output = story()
    output.log.fold()
    again = Log.open(output.log.storage)
    assert again.state == output.log.state
    assert LogState.from_json(again.state.to_json()) == again.state
    assert again.state.format == manifest.FORMAT_5
    assert again.state.outage is not None
    assert again.state.outage.tentative == 2


def test_what_a_later_version_says_of_a_fork_is_left_out() -> None:
    known = Outage("UP_FAILURE", 6, (1,), forks=fork(0, 2, 2))
    body = known.to_json()
    later = {**body, "mood": "calm", "forks": [{**body["forks"][0], "mood": "calm"}]}
    assert Outage.from_json(later) == known


def test_versions_that_know_no_outages_are_told_to_keep_away() -> None:
    output = story()
    data = output.log.storage.read(manifest.commit_key(1))
    assert data.startswith(b'{"format":5,')
    body = manifest.unseal(data, "here")
    with pytest.raises(FormatVersionError):
        commit_kinds.decode(manifest.seal({**body, "format": 6}), "here")


def test_streams_without_a_bound_keep_their_format() -> None:
    output = Output()
    output.append([(Kind.RESULT, 10)], None, 10)
    assert output.log.storage.read(manifest.commit_key(0)).startswith(b'{"format":1,')
    assert output.log.state.format == manifest.FORMAT


@pytest.mark.parametrize(
    ("outage", "problem"),
    [
        (None, "does not say how it is"),
        (Outage("STABLE", 8, (1,)), "speaks of missing inputs"),
        (Outage("STABLE", 8, forks=fork(5, 0, 0)), "speaks of missing inputs or of a fork"),
        (Outage("STABILIZATION", 8), "no fork to be corrected"),
        (Outage("UP_FAILURE", 8, (1,), forks=fork(5, 2, 4) * 2), "2 forks in 1 partitions"),
        (Outage("UP_FAILURE", 8, (1,), forks=fork(5, 9, 9)), "9 tentative tuples count"),
        (Outage("UP_FAILURE", 8, (1,), forks=fork(5, 3, 2)), "3 tentative tuples count"),
        (Outage("UP_FAILURE", 8, (1,), forks=fork(4, 2, 4)), "no undo says so"),
    ],
)
def test_an_append_that_contradicts_itself_is_refused(outage: Outage | None, problem: str) -> None:
    output = story()
    with pytest.raises(CorruptManifestError, match=problem):
        output.append([], outage, 20)


def test_results_are_counted_at_every_append() -> None:
    output = story()
    with pytest.raises(CorruptManifestError, match="had 2 results, 1 are new, and it says 7"):
        output.append([(Kind.RESULT, 30)], STABLE, 30, results=7)


def test_where_results_were_not_counted_from_the_start_they_never_are() -> None:
    output = Output()
    output.append([(Kind.RESULT, 10)], None, 10, results=None)
    with pytest.raises(CorruptManifestError, match="had None results"):
        output.append([(Kind.RESULT, 20)], None, 20, results=1)
    output.append([(Kind.RESULT, 20)], None, 20, results=None)


def test_a_standing_reaches_as_far_back_when_other_tuples_follow() -> None:
    standing = Standing(7, -1, 2, 3, 5, 4)
    assert standing.behind(3).extent == 8
    assert replace(standing, extent=0).behind(3).extent == 3  # it begins where the output ended
    assert replace(standing, extent=0, replay=0).behind(3).extent == 0
    assert replace(standing, extent=0, mode="instant").behind(3).extent == 0


# ---------------------------------------------------------------------- the n-th result


@pytest.mark.parametrize("span", [1, 2, 64])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_the_nth_result_is_found_between_all_that_is_none(
    is_compacted: bool, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_ordinals, "_SPAN", span)
    output = story()
    output.append([(Kind.RESULT, 30), (Kind.RESULT, 40), (Kind.UNDO, 0), (Kind.REC_DONE, 0)], STABLE, 40)
    if is_compacted:
        compact(output.log, blocks_min=2)
    ends = {r["_offset"]: r["window_end"] for table in output.log.read(0) for r in table.to_pylist()}
    found = [offset_of_result(output.log, 0, n) for n in range(5)]
    assert [ends.get(offset) for offset in found] == [10, 20, 30, 40, None]
    assert found[4] == output.log.state.ends[0]


def test_a_result_that_was_dropped_is_not_found() -> None:
    output = story()
    truncate(output.log, before_offset={0: 5})
    assert offset_of_result(output.log, 0, 1) == 5
    with pytest.raises(TruncatedError):
        offset_of_result(output.log, 0, 0)


def test_results_that_were_never_counted_have_no_number() -> None:
    output = Output()
    assert offset_of_result(output.log, 0, 3) == 0
    output.append([(Kind.RESULT, 10)], None, 10, results=None)
    with pytest.raises(StreamMismatchError, match="does not number its results"):
        offset_of_result(output.log, 0, 0)


def test_tail_shows_what_happened_and_what_is_void_by_now() -> None:
    """As `strandline tail --tentative` does: in a pipe, as JSON, and struck out in a terminal."""
    output = Output()
    forks = (ForkStanding(50, 9, 50, 5, 1, 3),)
    output.append([(Kind.RESULT, 10), (Kind.TENTATIVE, 20), (Kind.TENTATIVE, 30)], STABLE, 10)
    output.append(
        [(Kind.UNDO, 0), (Kind.G_OPEN, 60), (Kind.RESULT, 20), (Kind.TENTATIVE, 40)],
        Outage("UP_FAILURE", 7, (1,), forks=forks),
        20,
    )

    def shown(number: int, *, as_json: bool, is_terminal: bool = False) -> str:
        console = Console(file=io.StringIO(), force_terminal=is_terminal, color_system="standard", width=100)
        show_changes(output.log, Chosen([0], ["window_end"], number), console, follow=False, as_json=as_json)
        return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]

    rows = [json.loads(line) for line in shown(9, as_json=True).splitlines()]
    assert [(r["_offset"], r["_kind"]) for r in rows] == [
        (0, "stable"),
        (1, "void"),
        (2, "void"),
        (3, "undo"),
        (5, "stable"),
        (6, "tentative"),
    ]
    assert [json.loads(line)["_offset"] for line in shown(2, as_json=True).splitlines()] == [5, 6]
    assert shown(2, as_json=False).splitlines()[-2].split() == ["tentative", "0", "6", "40"]
    text = shown(9, as_json=False, is_terminal=True)
    assert "UP_FAILURE since 1970-01-01 00:00:00 UTC, missing: input 1" in text
    struck = [line for line in text.splitlines() if re.search(r"\x1b\[(\d+;)*9[;m]", line)]
    assert len(struck) == 2


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_tail_of_what_has_no_results_yet_shows_the_state(*, as_json: bool) -> None:
    """Nothing was published, or nothing but footprints: a tail that follows meets such commits all the time."""
    output = Output()
    for told in ((), ((Kind.G_OPEN, 20),)):
        console = Console(file=io.StringIO(), force_terminal=False, width=80)
        if told:
            output.append(told, STABLE, 10)
        show_changes(output.log, Chosen([0], ["window_end"], 10), console, follow=False, as_json=as_json)
        shown = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        state = "STABLE since 1970-01-01 00:00:00 UTC" if told else "nothing yet: the operator has published nothing"
        assert shown == ([] if as_json else [state])


class _Enough(Exception):
    """Ends a `tail` that follows."""


@pytest.mark.parametrize("number", [10, 1])
def test_tail_strikes_out_what_an_undo_voids_while_it_follows(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without colour: the rows come once more, as void; a failure is told before its rows, its end behind them."""
    output = Output()
    output.append([(Kind.RESULT, 10)], STABLE, 10)
    failing = Outage("UP_FAILURE", 6, (1,), forks=fork(0, 2, 2))
    events = [
        lambda: output.append([(Kind.TENTATIVE, 20), (Kind.TENTATIVE, 30)], failing, 10),
        lambda: output.append([(Kind.UNDO, 0), (Kind.RESULT, 20), (Kind.RESULT, 30), (Kind.REC_DONE, 0)], STABLE, 30),
    ]
    log = Log.open(output.log.storage, output.clock)

    def sleep(_seconds: float) -> None:
        if not events:
            raise _Enough
        events.pop(0)()

    monkeypatch.setattr(output.clock, "sleep", sleep)
    console = Console(file=io.StringIO(), force_terminal=False, width=80)
    with pytest.raises(_Enough):
        show_changes(log, Chosen([0], ["window_end"], number), console, follow=True, as_json=False)
    lines = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    void = [["void", "0", "1", "20"], ["void", "0", "2", "30"]]
    assert lines == [
        ["kind", "partition", "offset", "window_end"],
        ["stable", "0", "0", "10"],
        ["STABLE", "since", "1970-01-01", "00:00:00", "UTC"],
        ["UP_FAILURE", "since", "1970-01-01", "00:00:00", "UTC,", "missing:", "input", "1"],
        ["tentative", "0", "1", "20"],
        ["tentative", "0", "2", "30"],
        *void[-number:],
        ["undo", "2", "rows,", "tentative", "until", "now,", "are", "void"],
        ["stable", "0", "4", "20"],
        ["stable", "0", "5", "30"],
        ["rec_done", "what", "was", "void", "is", "corrected"],
        ["STABLE", "since", "1970-01-01", "00:00:00", "UTC"],
    ]
