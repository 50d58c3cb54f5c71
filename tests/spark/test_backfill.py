"""A history in one go through a real Spark: the benchmark, as small as can be, and what a user sees on the way."""

from pathlib import Path

import pytest

import benchmarks.backfill

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_backfill_gives_the_results_of_sparks_own_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_BENCH_DIR", str(tmp_path))
    result = benchmarks.backfill.run("tiny", 1)
    assert result["results_match"]
    assert {"ratio_to_spark_batch", "ratio_sessions_to_spark_batch", "per_tuple_growth"} <= result.keys()
    assert min(result["ratio_large_to_spark_batch"], result["ratio_sessions_large_to_spark_batch"]) > 0
    assert list(tmp_path.iterdir()) == []
