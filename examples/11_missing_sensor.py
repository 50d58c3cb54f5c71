"""Three sensors, of which one falls silent and comes back: results go on without it, and are corrected.

    python examples/11_missing_sensor.py

Each sensor's readings are persisted by a query of its own. An operator takes in all three and counts and averages what
they measured in every two seconds. While one of them is silent, nobody knows whether a window is complete; with
`availability(bound="2 s")` nothing waits for longer than that. Results then are tentative: made of what is there. When
the sensor is back, with all that it has measured meanwhile, they are undone, and the right ones follow.

Every line of the table is a change of one result. In the end nothing is tentative any more, and results are those of a
run in which no sensor was ever missing.
"""

import tempfile
import time

import strandline as sl

SENSORS = {"north": 18, "south": 24, "west": 21}
"""How warm it is, about, where they are."""
TOGETHER_S, SILENT_S, AFTER_S = 4, 6, 4
"""How long all three are there, how long the south is silent, how long all are there again."""


class Board:
    """Prints what happens to results: a sink that is told of tentative ones, and of what becomes of them."""

    def __init__(self) -> None:
        self.tentative: dict[int, list] = {}
        self.began_s = 0.0
        """When there was something to show."""

    def __call__(self, batch, _number: int) -> None:
        """Takes in a batch of `read_stream(tentative=True)`. Each partition has a story of its own."""
        found = batch.orderBy("_partition", "_offset").collect()
        if found and not self.began_s:
            print(f"{'clock':>7}  {'window':<19} {'readings':>9} {'mean':>8}  state", flush=True)
            self.began_s = time.monotonic()
        for row in found:
            guesses = self.tentative.setdefault(row["_partition"], [])
            if row["_kind"] == "undo":  # all tentative results of this partition before it are void
                for guess in guesses:
                    self.show(guess, "undone")
                guesses.clear()
            elif row["_kind"] == "rec_done":
                self.say("all that was undone is corrected")
            else:
                self.show(row, row["_kind"])
                if row["_kind"] == "tentative":
                    guesses.append(row)

    def show(self, row, state: str) -> None:
        window = f"{row['window_start']:%H:%M:%S} - {row['window_end']:%H:%M:%S}"
        print(f"{self.clock()}  {window} {row['n']:>9} {row['mean']:>8.2f}  {state}", flush=True)

    def say(self, what: str) -> None:
        print(f"{self.clock()}  {what}", flush=True)

    def clock(self) -> str:
        return f"{time.monotonic() - self.began_s:5.1f} s"


def sensor(spark, folder: str, name: str) -> sl.Query:
    """Persists what a sensor measures, ten times a second. A sensor that starts again has forgotten nothing."""
    ticks = spark.readStream.format("rate").options(rowsPerSecond=10, numPartitions=1).load()
    readings = ticks.selectExpr("0L AS room", "timestamp AS at", f"{SENSORS[name]} + value % 10 / 10 AS celsius")
    entry = sl.persist(readings, f"{folder}/{name}", key="room", time="at", partitions=1, lateness="0 s")
    return entry.start(spark, trigger="500 ms")


def averages(folder: str) -> sl.Aggregation:
    """The operator: it takes in all three streams as one."""
    together = sl.union(*(sl.stream(f"{folder}/{name}") for name in SENSORS))
    return together.window(sl.time_window("2 s")).aggregate(n=sl.count_all(), mean=sl.avg("celsius"))


def wait(condition, seconds: float = 120) -> None:
    """Returns when it is so."""
    give_up_s = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up_s:
            raise TimeoutError("that has taken too long")
        time.sleep(0.1)


def rows(results) -> list[tuple]:
    """What a DataFrame has, in order."""
    return sorted(map(tuple, results.collect()))


def main(folder: str) -> None:
    spark = sl.session("local[2]")
    sensors = {name: sensor(spark, folder, name) for name in SENSORS}
    query = averages(folder).availability(bound="2 s").start(spark, f"{folder}/averages", trigger="200 ms")
    results = sl.stream(f"{folder}/averages")
    wait(lambda: query.progress.get("results"))

    board = Board()
    changes = results.read_stream(spark, tentative=True, start="latest")
    reader = changes.writeStream.foreachBatch(board).trigger(processingTime="200 milliseconds").start()
    wait(lambda: board.began_s)
    time.sleep(TOGETHER_S)
    board.say("south falls silent")
    sensors["south"].stop()
    wait(lambda: query.progress["tentative"])
    board.say(f"the operator is in {query.progress['state']}; missing: {', '.join(query.progress['missing'])}")
    time.sleep(SILENT_S)
    board.say("south is back, with all that it has measured meanwhile")
    sensors["south"] = sensor(spark, folder, "south")
    wait(lambda: query.progress["state"] == "STABLE")
    time.sleep(AFTER_S)

    for running in sensors.values():
        running.finish()  # nothing more will come: all windows close
    query.process_all_available()
    reader.processAllAvailable()
    reader.stop()
    query.stop()

    averages(folder).start(spark, f"{folder}/undisturbed", trigger="available-now").await_termination()
    stable = rows(results.read(spark))
    same = rows(results.read(spark, tentative=True).drop("_tentative")) == stable
    right = rows(sl.stream(f"{folder}/undisturbed").read(spark)) == stable
    print(f"\nread(tentative=True) {'equals' if same else 'DIFFERS FROM'} read(): nothing is tentative any more")
    print(f"{len(stable)} results, {'just' if right else 'NOT'} those of a run in which no sensor was missing")
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(temporary)
