"""What the benchmark of joins does with Spark, as small as can be: it runs, and its results are right."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.spark_joins import JoinSize, joins
from benchmarks.union_cost import union_cost


@pytest.mark.long
def test_the_contenders_of_the_join_are_measured_and_its_results_are_those_of_numpy(
    spark: SparkSession, tmp_path: Path
) -> None:
    row = joins(spark, JoinSize(1_000, 2_500, 2, 2), 1, tmp_path)
    assert row["results_match"]
    assert row["contenders_tuples_per_s"].keys() == {"strandline", "spark", "entry", "spark_memory"}
    assert min(row["contenders_tuples_per_s"].values()) > 0
    assert row["tuples_per_s"] == row["contenders_tuples_per_s"]["strandline"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_union_of_three_streams_has_the_results_of_one_with_the_same_tuples(
    spark: SparkSession, tmp_path: Path
) -> None:
    row = union_cost(spark, 100, 6_000, 1, tmp_path)
    assert row["results_match"]
    assert row["ratio_union_to_one"] > 0
    assert row["union"]["tuples"] == 6_000
    assert list(tmp_path.iterdir()) == []
