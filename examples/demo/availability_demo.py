"""`strandline demo availability`: an input falls silent and comes back, and a picture of what became of results."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console, Group
from rich.live import Live

import strandline as sl
from examples.demo import demo_sensors as sensors
from examples.demo.outage_sketch import sketch
from examples.demo.outage_story import OutageStory, Told, longest_waits, outage_story, told
from examples.demo.outage_svg import svg
from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import StrandlineError
from strandline.log.operator_state.outage import Outage
from strandline.log.reading.bounds import Bounds
from strandline.log.reading.results import Results
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.wording import duration, plural

_POLL_S = 0.25
_PATIENCE_S = 180.0
_LAG_S, _CATCH_UP_S = 3.0, 30.0
_CALM_S = 4.0
"""How long all is well before and after."""


class _Stage:
    """The sensors, the operator over them, and the picture so far."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.folder = folder
        self.console = console
        # Ctrl-C ends the demo without a word: PySpark's own handler asks the JVM in the middle of an answer, and py4j
        # tells of all that it is interrupted in.
        logging.disable(logging.CRITICAL)
        self.spark = sl.session("local[2]", app_name="strandline demo")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.queries = {name: self.start(name) for name in sensors.SENSORS}
        self.operator = sensors.start_averages(self.spark, folder)
        self.inputs = {name: _log(folder / name) for name in sensors.SENSORS}
        self.output = _log(folder / sensors.AVERAGES)
        self.began_us = SYSTEM_CLOCK.now_us()

    def start(self, name: str) -> sl.Query:
        """Starts a sensor, for the first time or again."""
        return sensors.start_sensor(self.spark, self.folder, name)

    def story(self) -> OutageStory:
        """Returns what has happened so far."""
        for log in (*self.inputs.values(), self.output):
            log.refresh()
        return outage_story(self.inputs, self.output, self.began_us, SYSTEM_CLOCK.now_us())

    def until(self, condition: Callable[[], Any], live: Live | None = None, seconds: float = _PATIENCE_S) -> None:
        """Waits until it is so, and draws meanwhile; raises if that takes too long, or if a query has failed."""
        give_up_s = stopwatch_s() + seconds
        while not condition():
            if stopwatch_s() > give_up_s:
                raise StrandlineError(
                    f"the demo's queries have done nothing for {seconds:.0f} s",
                    where=str(self.folder),
                    todo="try again when this machine is less busy",
                )
            self.operator.await_termination(timeout=_POLL_S)
            self.draw(live)

    def catch_up(self) -> None:
        """Waits until the operator has taken in what came while it started: from here on the story is told."""
        self.until(lambda: self.operator.progress.get("results"))
        patience_s = stopwatch_s() + _CATCH_UP_S
        self.until(lambda: self._lag_s() < _LAG_S or stopwatch_s() > patience_s)
        self.began_us = SYSTEM_CLOCK.now_us()

    def _lag_s(self) -> float:
        """Returns by how many seconds the results are behind the clock."""
        self.output.refresh()
        complete = [b for b in self.output.state.boundaries if b is not None]
        return (SYSTEM_CLOCK.now_us() - min(complete, default=0)) / 1e6

    def calm(self, live: Live, seconds: float) -> None:
        """Lets things go on for a while."""
        end_s = stopwatch_s() + seconds
        self.until(lambda: stopwatch_s() >= end_s, live, seconds + _PATIENCE_S)

    def draw(self, live: Live | None) -> None:
        """Draws the picture as it is now, if the output is a terminal."""
        if live is not None and self.console.is_terminal:
            live.update(Group(*sketch(self.story())), refresh=True)

    def finish(self) -> None:
        """Ends the sensors, lets the operator take in all that they have measured, and ends it."""
        for query in self.queries.values():
            query.finish()
        self.operator.process_all_available()
        self.operator.stop()


def demo_availability(folder: Path, silence_s: float, console: Console) -> dict[str, Any]:
    """Lets a sensor fall silent and come back, draws what happens, compares; says what was seen."""
    console.print(f"[bold]1[/]  Three sensors stream in through Spark\n   → {folder}/{{{','.join(sensors.SENSORS)}}}")
    console.print(
        f"   The average of every second comes out; nothing waits longer than {sensors.BOUND}\n"
        f"   → {folder}/{sensors.AVERAGES}"
    )
    stage = _Stage(folder, console)
    stage.catch_up()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        _fail(stage, live, silence_s)
        story = stage.story()
    stage.finish()
    for line in sketch(story):
        console.print(line, soft_wrap=True)
    seen = _compare(stage, story)
    stage.spark.stop()
    picture = folder / "availability.svg"
    title = f"{sensors.SILENT} falls silent for {duration(round(silence_s * 1e6))}; the bound is {sensors.BOUND}"
    picture.write_text(svg(story, _told(stage, story), title))
    console.print(f"   Picture: {picture}", soft_wrap=True)
    console.print(f"   Try:  strandline tail {folder}/{sensors.AVERAGES} --tentative -n 50", soft_wrap=True)
    return {"path": str(folder), "silence_s": silence_s, **seen, "picture": str(picture)}


def _fail(stage: _Stage, live: Live, silence_s: float) -> None:
    """Lets a sensor fall silent and come back, from a while before to a while after."""
    operator, say = stage.operator, stage.console.print
    stage.calm(live, _CALM_S)
    say(f"[bold]2[/]  {sensors.SILENT} falls silent: the program that persists it has stopped.")
    stage.queries[sensors.SILENT].stop()
    silent_s = stopwatch_s()
    stage.until(lambda: operator.progress["tentative"] or stopwatch_s() > silent_s + silence_s, live)
    if operator.progress["tentative"]:
        missing = ", ".join(operator.progress["missing"])
        say(f"   {operator.progress['state']} after {stopwatch_s() - silent_s:.1f} s, missing: {missing}.", end=" ")
        say("Results go on, tentative.")
    stage.calm(live, silent_s + silence_s - stopwatch_s())
    say(f"[bold]3[/]  {sensors.SILENT} is back, with all that it has measured meanwhile.")
    stage.queries[sensors.SILENT] = stage.start(sensors.SILENT)
    back_s = stopwatch_s()
    stage.until(lambda: operator.progress["state"] == "STABLE", live)
    say(f"   STABLE after {stopwatch_s() - back_s:.1f} s: what was tentative is undone and corrected.")
    stage.calm(live, _CALM_S)


def _compare(stage: _Stage, story: OutageStory) -> dict[str, Any]:
    """Compares the results with those of a run without a failure; returns and prints how long they took."""
    guesses = sum(moment.tentative for moment in story.moments)
    waited_s, stable_s = longest_waits(_told(stage, story))
    stage.console.print(
        f"   {plural(guesses, 'tentative result')}, all void by now. After the end of a window it took\n"
        f"   {waited_s:.1f} s at most to a result, {stable_s:.1f} s to a stable one."
    )
    sensors.average_again(stage.spark, stage.folder)
    ours, theirs = (_results(stage.folder / name) for name in (sensors.AVERAGES, sensors.UNDISTURBED))
    good = ours.equals(theirs) and not (stage.output.state.outage or Outage()).tentative
    stage.console.print(
        f"[bold]4[/]  {ours.num_rows:,} stable results: "
        + ("[green]bit by bit those of a run without a failure.[/]" if good else "[red]not those without a failure![/]")
    )
    waits = {"wait_s": round(waited_s, 3), "stable_wait_s": round(stable_s, 3)}
    return {"tentative": guesses, **waits, "results": ours.num_rows, "identical": good}


def _told(stage: _Stage, story: OutageStory) -> list[Told]:
    """Returns the results of windows that ended during the story."""
    stage.output.refresh()
    found = told(stage.output, stage.began_us)
    return [one for one in found if one.seconds <= story.seconds and 0 <= one.time_s <= story.seconds]


def _results(path: Path) -> pa.Table:
    log = _log(path)
    return Results(log, Bounds({}, {}, None, None), list(log.spec.columns), late=False, positions=False).table()


def _log(path: Path) -> Log:
    return Log.open(LocalStorage(path))
