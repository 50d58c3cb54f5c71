"""What the benchmark of availability does with Spark, as small as can be: it runs, and its results are right."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import availability_in_spark
from benchmarks.availability_in_spark import failure, overhead
from benchmarks.input_failures import Contender
from tests.support.machine import patience


@pytest.mark.long
def test_a_bound_changes_no_result_while_nothing_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability_in_spark, "ROUNDS", 1)
    row = overhead(spark, 3_000, 4, 1, tmp_path)
    assert row["stable_match"]
    assert row["overhead_ratio"] > 0
    assert row["overhead"]["tuples"] == 12_000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_failure_in_spark_is_measured_and_corrected(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability_in_spark, "PATIENCE_S", patience(120))
    row = failure(spark, Contender(1.0), 4.0, 300, tmp_path / "failure")
    assert row["stable_match"]
    assert row["tentative"] > 0
    assert row["delay_new_max_s"] >= 1.0, "nothing is guessed before the bound has run out"
    assert not (tmp_path / "failure").exists()
