"""A model of the yield of wafers, learnt on line, and what three policies leave of it when it is killed.

    python examples/09_yield_prediction.py          # two kills, a minute or two; the picture is drawn in the terminal
    python examples/09_yield_prediction.py 4 here   # four kills; the folder `here` keeps streams and picture

The experiment of the SPADE paper (5.1). A fab measures every wafer by some sensors and, later, its yield. The model is
a class, one object for all wafers: it predicts, sees the yield, and learns. What the sensors mean drifts, so history is
worth something, and the newest of it most. Three such operators over the same wafers have three policies. All run in
one program that dies by SIGKILL at random moments, and begins anew on a machine that has nothing but the streams.

How far are predictions from those of a run that was never killed? `instant` replays what it lost: not at all.
`partial` goes on with the model that was saved last, at most a second old. `none` learns from scratch.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl

WAFERS, SENSORS, SEED = 9_000, 6, 5
AT_ONCE = 150
"""Wafers that a commit has, and a batch takes in: the fab runs for half a minute or so."""
PAPER = {"partial": 4.80, "none": 7.79}
"""Root mean square of the errors in the paper's own fab, which had other wafers."""
POLICIES = {"instant": sl.instant("1 s"), "partial": sl.partial("1 s"), "none": sl.none()}


class YieldModel(sl.Operator):
    """Predicts the yield of a wafer from its sensors, then learns from what it was: least mean squares, normalised."""

    output = "tool long, wafer long, at timestamp, predicted double, error double"
    time = "at"

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.weights = np.zeros(SENSORS + 1)
        self.seen = 0

    def process(self, tuples: pa.Table) -> pa.Table:
        """Wafer by wafer, so that it does not matter in which batch one comes."""
        readings = np.column_stack([tuples.column(f"s{i}").to_numpy() for i in range(SENSORS)])
        inputs = np.column_stack([np.ones(len(readings)), readings])
        actual = tuples.column("actual").to_numpy()
        predicted = np.empty(len(actual))
        for i, x in enumerate(inputs):
            predicted[i] = np.sum(self.weights * x)
            self.weights += self.rate * (actual[i] - predicted[i]) / np.sum(x * x) * x
        self.seen += len(actual)
        kept = tuples.select(["tool", "wafer", "at"])
        return kept.append_column("predicted", pa.array(predicted)).append_column("error", pa.array(predicted - actual))

    def get_checkpoint(self) -> dict:
        return {"weights": self.weights, "seen": self.seen}

    def restore_checkpoint(self, state: dict) -> None:
        self.weights, self.seen = state["weights"], state["seen"]


def wafers() -> pa.Table:
    """Readings and yields (in percent) of all wafers; what the sensors mean drifts, and so does their level."""
    rng = np.random.default_rng(SEED)
    drift = np.cumsum(rng.normal(0, 0.03, (WAFERS, SENSORS + 1)), axis=0)
    weights = drift + rng.normal(0, 3, SENSORS + 1) + np.eye(1, SENSORS + 1)[0] * 80
    level = np.cumsum(rng.normal(0, 0.01, (WAFERS, SENSORS)), axis=0)
    readings = rng.normal(0, 1, (WAFERS, SENSORS)) + level
    inputs = np.column_stack([np.ones(WAFERS), readings])
    actual = np.clip((weights * inputs).sum(axis=1) + rng.normal(0, 1, WAFERS), 0, 100)
    numbers = np.arange(WAFERS)
    columns = {f"s{i}": readings[:, i] for i in range(SENSORS)}
    at = pa.array(numbers * 100_000, pa.timestamp("us", tz="UTC"))
    return pa.table({"tool": np.zeros(WAFERS, np.int64), "wafer": numbers, "at": at, **columns, "actual": actual})


def persist_wafers(spark, folder: str) -> None:
    """Makes the wafers a stream of many small commits, as if the fab had made them one after the other."""
    table = wafers()
    Path(folder, "files").mkdir(parents=True)
    for number, first in enumerate(range(0, WAFERS, AT_ONCE)):
        file = f"{folder}/files/{number:05d}.parquet"
        pq.write_table(table.slice(first, AT_ONCE), file)
        os.utime(file, (1_000_000 + number, 1_000_000 + number))  # Spark reads files in this order
    schema = spark.read.parquet(f"{folder}/files").schema
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/files")
    entry = sl.persist(files, f"{folder}/wafers", key="tool", time="at", partitions=1)
    entry.start(spark, trigger="available-now").await_termination()


def model(folder: str, policy: sl.Policy | None = None):
    """The operator over the wafers."""
    operator = sl.stream(f"{folder}/wafers").apply(YieldModel(rate=0.05))
    return operator if policy is None else operator.checkpoint(policy)


def child(folder: str) -> None:
    """The program that gets killed: three models at work, until all wafers are predicted."""
    spark = sl.session("local[2]")
    queries = [
        model(folder, policy).start(spark, f"{folder}/{name}", trigger="200 ms", max_tuples_per_batch=AT_ONCE)
        for name, policy in POLICIES.items()
    ]
    while any(done(folder, name) < WAFERS for name in POLICIES):
        queries[0].await_termination(timeout=0.5)
    for query in queries:
        query.stop()
    spark.stop()


def done(folder: str, name: str) -> int:
    """How many wafers an operator has taken in."""
    if not Path(folder, name, "stream.json").exists():
        return 0
    return sum(p["input"] for p in sl.stream(f"{folder}/{name}").recovery())


def live(folder: str, kills: int) -> list[int]:
    """Runs the program, kills it at random moments, lets it finish; after how many wafers it was killed."""
    chance = random.Random(SEED)
    moments = [0.2 + 0.65 * (life + chance.random()) / kills for life in range(kills)]
    killed = []
    for life, moment in enumerate([*moments, None]):
        # Every life has a state folder of its own, as if it were another machine: only the streams survive.
        environment = {**os.environ, "STRANDLINE_STATE_DIR": f"{folder}/state-{life}"}
        command = [sys.executable, __file__, "child", folder]
        process = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
        try:
            while moment is not None and process.poll() is None:
                time.sleep(0.2)
                if min(done(folder, name) for name in POLICIES) >= moment * WAFERS:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    killed.append(min(done(folder, name) for name in POLICIES))
            process.wait()
        finally:
            if process.poll() is None:  # whatever happens to this program, the other one ends with it
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode == 0:
            print("all wafers are predicted", flush=True)
            break
        if len(killed) <= life:
            sys.exit(f"the program has ended by itself, with {process.returncode}")
        print(f"killed after {killed[-1]:,} of {WAFERS:,} wafers", flush=True)
    return killed


# ---------------------------------------------------------------------- how far off


def predictions(folder: str, name: str) -> np.ndarray:
    """What an operator predicted for each wafer; not a number if nothing."""
    found = np.full(WAFERS, np.nan)
    for row in sl.stream(f"{folder}/{name}").log(partition=0):
        if row["_kind"] == 0:
            found[row["wafer"]] = row["predicted"]
    return found


def curve(errors: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Which part of the errors is at most so large."""
    return np.searchsorted(np.sort(errors), at, side="right") / len(errors)


def text_picture(errors: dict, width: int = 64, height: int = 12) -> str:
    """The cumulative distributions, errors in a logarithmic scale, for a terminal of 80 columns."""
    at = np.geomspace(0.001, 100, width)
    lines = [[" "] * width for _ in range(height + 1)]
    for name, mark in (("none", "n"), ("partial", "p"), ("instant", "i")):
        for x, part in enumerate(curve(errors[name], at)):
            lines[height - round(part * height)][x] = mark
    axis = "".join(f"{f'{10.0**e:g}':<{width // 5}}" for e in range(-3, 3)).rstrip()
    labels = [f"{100 * (height - i) // height:>4} % |" for i in range(height + 1)]
    body = [f"{label}{''.join(line)}" for label, line in zip(labels, lines, strict=True)]
    return "\n".join([*body, f"       +{'-' * width}", f"        {axis}", f"{'points off':>72}"])


def svg_picture(errors: dict) -> str:
    """The same as an image."""
    at, (left, top, width, height) = np.geomspace(0.001, 100, 300), (60, 20, 520, 300)
    x, colours = left + np.linspace(0, width, len(at)), {"instant": "#2a7", "partial": "#27c", "none": "#c33"}
    parts = []
    for i, (name, colour) in enumerate(colours.items()):
        y = top + height * (1 - curve(errors[name], at))
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{left + 12}" y="{top + 130 + 18 * i}" fill="{colour}">{name}</text>')
    for e in range(-3, 3):
        parts.append(f'<text x="{left + width * (e + 3) / 5:.0f}" y="{top + height + 18}">{10.0**e:g}</text>')
    for percent in (0, 50, 100):
        parts.append(f'<text x="12" y="{top + height * (1 - percent / 100) + 4:.0f}">{percent} %</text>')
    frame = f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888"/>'
    title = f'<text x="{left + 150}" y="{top + height + 38}">points off the run that was never killed</text>'
    style = 'font-family="sans-serif" font-size="13"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="620" height="370" {style}>{frame}{"".join(parts)}{title}</svg>'
    )


def parent(kills: int, folder: str) -> None:
    """Lets three models live and die, and says how far off they were from the first kill on."""
    spark = sl.session("local[2]")
    persist_wafers(spark, folder)
    model(folder).start(spark, f"{folder}/undisturbed", trigger="available-now").await_termination()
    spark.stop()
    print(f"{WAFERS:,} wafers; three models at work, {kills} {'kill' if kills == 1 else 'kills'}", flush=True)

    killed = live(folder, kills)
    expected = predictions(folder, "undisturbed")[killed[0] :]
    errors = {name: np.abs(predictions(folder, name)[killed[0] :] - expected) for name in POLICIES}
    print(f"\n{'policy':<12}{'lost wafers':>12}{'RMSE':>9}{'median':>9}{'worst':>9}{'the paper':>11}")
    for name, off in errors.items():
        lost = sum(sl.stream(f"{folder}/{name}").losses().column("tuples").to_pylist())
        rmse, paper = np.sqrt(np.mean(off**2)), f"{PAPER[name]:.2f}" if name in PAPER else ""
        print(f"{name:<12}{lost:>12,}{rmse:>9.3f}{np.median(off):>9.3f}{off.max():>9.3f}{paper:>11}")
    print(f"\npredictions that are at most so far off:\n{text_picture(errors)}")
    Path(folder, "errors.svg").write_text(svg_picture(errors))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2])
    elif len(sys.argv) > 2:
        parent(int(sys.argv[1]), sys.argv[2])
        print(f"the picture is in {sys.argv[2]}/errors.svg")
    else:
        place = tempfile.mkdtemp(prefix="strandline-example-")
        try:
            parent(int(sys.argv[1]) if sys.argv[1:] else 2, place)
        finally:
            shutil.rmtree(place)
