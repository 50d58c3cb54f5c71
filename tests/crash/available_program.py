"""A program that runs an operator with a bound over three streams, until a file says that it is enough. Tests kill it.

Without `--dies`, the same operator runs at the end without a bound, over the same streams and with nothing happening to
it: what it makes is what must be there.
"""

import argparse
import time
from pathlib import Path

import strandline as sl
from tests.support.available_case import Numbered
from tests.support.sensors import NAMES, counted

POLICIES = {"cec": sl.cec(extent="2x", replay=1_000), "tight": sl.cec(extent=20, replay=10)}

arguments = argparse.ArgumentParser()
arguments.add_argument("root", type=Path)
arguments.add_argument("failing", nargs="?", default="process")
arguments.add_argument("reconcile", nargs="?", default="redo")
arguments.add_argument("operator", nargs="?", default="counted", choices=["counted", "class"])
arguments.add_argument("--policy", default="cec", choices=[*POLICIES])
arguments.add_argument("--master", default="local[2]")
arguments.add_argument("--tasks-die", nargs="*", default=[])
arguments.add_argument("--dies", action="store_true", help="it is meant to die before it comes to the comparison")


if __name__ == "__main__":
    given = arguments.parse_args()
    spark = sl.session(given.master)
    paths = [given.root / name for name in NAMES]
    if given.operator == "class":
        operator = sl.union(*(sl.stream(str(path)) for path in paths)).apply(Numbered())
    else:
        operator = counted(paths).checkpoint(POLICIES[given.policy])
    available = operator.availability("2 s", failing=given.failing, reconcile=given.reconcile)
    with available.start(spark, str(given.root / "results"), trigger="200 ms") as query:
        while not (given.root / "enough").exists():
            if not query.is_active:
                query.await_termination()  # raises what has ended it
                raise SystemExit("the query has ended")
            time.sleep(0.05)
    if not given.dies:
        operator.start(spark, str(given.root / "results-expected"), trigger="available-now").await_termination()
    spark.stop()
