"""A machine on which nothing was ever compiled: it is given the kernels with its first task."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.operators.kernels.kernel_cache import installed_folder
from tests.support.machine import patience

pytestmark = [pytest.mark.spark, pytest.mark.long]  # executors of their own

PROGRAM = """
import json, os, sys
from pathlib import Path
import strandline as sl
from strandline.log.stream.column_types import fields_of
from strandline.inputs.stream_definition import definition_of
from strandline.running.kernel_warm_up import Kernels

folder = Path(sys.argv[1])
elsewhere = {"spark.executorEnv.NUMBA_CACHE_DIR": str(folder / "executor")}
spark = sl.session("local-cluster[1,1,1024]", **elsewhere)
rows = spark.range(2_000).selectExpr("id % 50 as k", "cast(id as double) as x", "timestamp_millis(id) as t")
rows.write.parquet(str(folder / "rows"))
source = spark.readStream.schema(rows.schema).parquet(str(folder / "rows"))
items = str(folder / "items")
sl.persist(source, items, key="k", time="t", partitions=1).start(spark, trigger="available-now").await_termination()
averages = sl.stream(items).window(sl.count_window(7)).aggregate(mean=sl.avg("x"))
query = averages.start(spark, str(folder / "averages"), trigger="available-now")
query.await_termination()
output = sl.stream(str(folder / "averages"))
kernels = Kernels(averages.definition, (sl.stream(items)._input_spec,))
print(json.dumps({"names": kernels.names, "recovery": output.recovery(), "results": output.read(spark).count()}))
spark.stop()
"""


def test_an_executor_is_given_its_kernels_by_the_driver(tmp_path: Path) -> None:
    own = {"STRANDLINE_STATE_DIR": str(tmp_path / "state"), "NUMBA_CACHE_DIR": str(tmp_path / "driver")}
    environment = {**os.environ, **own}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(280), env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["results"] == 2_000 // 50 // 7 * 50
    [kept] = (tmp_path / "executor" / "strandline-kernels").iterdir()
    # All of them, of which it has not run half: it has not recovered anything yet. But for those beside the sources,
    # which every process of this machine finds.
    installed = installed_folder()
    beside = {path.name for path in installed.iterdir()} if installed is not None else set()
    given = {path.name for path in kept.iterdir()}
    assert given <= set(seen["names"]) <= given | beside
    # A worker that has to compile does not take that for what a start takes.
    assert seen["recovery"][0]["predicted_cold_s"] > seen["recovery"][0]["predicted_s"]
