"""Draws, where all tests of a group would take too long, some of them for each run, by the hash of the commit.

A group is a file, some files, a test with many parameters, or tests marked `drawn(group)`. `make test` takes `quick` of
its ordinary tests. `make test-long` takes `long` of those that are left: ordinary ones that were not drawn, and those
marked long. So the runs of CI differ from commit to commit, and a few commits together run everything. `make test-all`
always does. Tests of no group always run, in their tier. So do all tests of a folder or file that is asked for by name.

Tests of many plans (windows, types, aggregates) try some plans in each tier, the same ones in all files: every plan has
kernels of its own, which take seconds to compile.

The numbers are chosen by the time that tests take on the reference machine (docs/testing.md). A machine that is twice
as slow draws half as many, so the drawn tests take it as long. Of each group at least one test runs in some tier. What
one commit must not go without has no group, and runs on every machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import pytest

from tests.support.draw import generator
from tests.support.operator_streams import PLANS

SLOWEST = 2.5
"""A machine that is slower than that draws no less: a run on a busy machine must not be much weaker than others."""


def drawn_part(slowness: float) -> float:
    """Returns the part of all shares that a machine draws which is so many times slower than the reference."""
    return round(1 / min(max(slowness, 1.0), SLOWEST), 2)


class Share(NamedTuple):
    """How many tests of a group run in each tier."""

    quick: int
    long: int

    def part(self, part: float, rng: Random) -> Share:
        """Returns a part of both numbers, and at least one test of one tier; the generator rounds up or down."""
        quick, long = (int(number * part + rng.random()) for number in self)
        return Share(quick, max(long, 1)) if self.long else Share(max(quick, min(self.quick, 1)), 0)


SHARES = {
    # Real processes that die. Not here: every failpoint once (test_crash_matrix), and what stands for all in make test.
    "crash: clusters": Share(0, 2),
    "crash: other moments": Share(0, 2),
    # Spark
    "tests/spark/test_bad_input.py": Share(3, 12),
    "tests/spark/test_blocks.py": Share(0, 3),
    "tests/spark/test_columns.py": Share(2, 3),
    "tests/spark/test_late.py": Share(1, 3),
    "tests/spark/test_listener.py": Share(1, 2),
    "tests/spark/test_operator.py": Share(2, 7),
    "tests/spark/test_order.py": Share(2, 3),
    "tests/spark/test_plain_session.py": Share(0, 3),
    "tests/spark/test_query.py": Share(2, 3),
    "tests/spark/test_quiet_stream.py": Share(2, 3),
    "tests/spark/test_read.py": Share(3, 6),
    "tests/spark/test_read_stream.py": Share(2, 3),
    "tests/spark/test_set_aside.py": Share(2, 3),
    "tests/spark/test_shaped.py": Share(1, 2),
    "tests/spark/test_shared_source.py": Share(1, 3),
    "tests/spark/test_since.py": Share(1, 2),
    "tests/spark/test_spark_checkpoint.py": Share(2, 4),
    "tests/spark/test_tables.py": Share(1, 2),
    "tests/spark/test_tentative_reading.py": Share(1, 3),
    "tests/spark/test_time_zone.py": Share(1, 1),
    "tests/spark/test_trouble.py": Share(2, 3),
    "tests/spark/test_union.py": Share(0, 3),
    "spark: availability": Share(0, 3),
    "spark: long stories": Share(0, 3),
    "papers": Share(0, 3),
    # Programs of the documentation. Not here: the one that README begins with.
    "examples": Share(0, 3),
    "examples that are killed": Share(0, 2),
    # Kernels: each plan has its own, which take seconds to compile.
    "tests/simulation/test_simulations.py::test_fixed_seeds": Share(1, 8),
    "tests/simulation/test_simulations.py::test_seeds_of_this_commit": Share(3, 0),
    "tests/property/test_operator.py": Share(4, 17),
    "tests/property/test_join.py": Share(2, 17),
    "tests/property/test_partial.py": Share(2, 13),
    "tests/property/test_keyed.py": Share(2, 3),
    "tests/property/test_barrier.py": Share(3, 28),
    "tests/property/test_barrier_over_streams.py": Share(3, 21),
    "tests/property/test_hostile_footprints.py": Share(0, 5),
    "tests/property/test_serialised_input.py": Share(3, 10),
    "tests/golden/test_golden_operators.py": Share(0, 3),
    "tests/golden/test_golden_several.py": Share(2, 5),
    "tests/golden/test_golden_lossy.py": Share(0, 1),
    "tests/unit/test_kernel_cache.py": Share(0, 3),
    "tests/unit/test_warm_up.py": Share(3, 5),
    "tests/unit/test_benchmarks.py": Share(2, 4),
    "tests/unit/test_since.py": Share(12, 14),
    "tests/unit/test_set_aside.py": Share(4, 14),
    "tests/unit/test_join_conditions.py": Share(3, 7),
    "tests/unit/test_policy_changes.py": Share(21, 70),
    "tests/unit/test_eventual_checkpoint.py": Share(27, 42),
    "tests/unit/test_operator_batches.py": Share(11, 14),
    "tests/unit/test_operator_retention.py": Share(3, 5),
    "tests/unit/test_shaped_inputs.py": Share(4, 5),
    "tests/unit/test_testing_run.py": Share(4, 5),
    "tests/unit/test_conditions.py": Share(2, 3),
    "tests/unit/test_sketches.py": Share(3, 5),
    "tests/unit/test_sessions.py": Share(2, 2),
    "tests/unit/test_slow_windows.py": Share(4, 6),
    "tests/unit/test_keyed.py": Share(11, 11),
    "tests/unit/test_keyed_element.py": Share(3, 5),
    "tests/unit/test_available_job.py": Share(5, 6),
    "tests/unit/test_partition_wide_element.py": Share(9, 11),
    "tests/unit/test_results_only.py": Share(5, 7),
    "tests/unit/test_levels.py": Share(3, 6),
    "tests/unit/test_serialised_input.py": Share(12, 11),
    # One behaviour suite over every storage, each test some servers and processes.
    "tests/unit/test_storage.py": Share(120, 105),
    "tests/simulation/test_crash_everywhere.py": Share(1, 2),
}

FILES = {
    "spark: availability": (
        "test_availability_benchmark",
        "test_availability_in_spark",
        "test_available_operators",
        "test_demo_availability",
        "test_hung_inputs_in_spark",
        "test_replicas_in_spark",
    ),
    "spark: long stories": (
        "test_backfill",
        "test_housekeeping",
        "test_join_benchmark",
        "test_join_like_spark",
        "test_kernel_shipping",
        "test_schema_evolution",
    ),
}
"""Groups of several files of `tests/spark`."""
_GROUPS = {f"tests/spark/{file}.py": group for group, files in FILES.items() for file in files}


PLANS_SHARES = {
    "tests/property/test_operator.py": Share(2, 10),
    "tests/property/test_join.py": Share(1, 6),
    "": Share(1, 3),
}
"""How many plans each tier tries, by the file that has them; those of `operator_streams.py` are under no name."""
PLANS_ALWAYS = ("tumbling count", "tumbling time", "sliding time", "session")
"""Plans that many tests name: their kernels are compiled anyway."""


def plan_of(item: pytest.Item) -> tuple[str, str] | None:
    """Returns the file and the name of the plan that a test has as a parameter; None if it has none."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    file = item.nodeid.partition("::")[0]
    for value in (params.get("plan"), params.get("name")):
        if file in PLANS_SHARES and isinstance(value, str):
            return file, value
        for name, plan in PLANS.items():
            if value is plan or value == name:
                return "", name
    return None


def tier_of_plans(items: Sequence[pytest.Item], text: str, part: float) -> dict[tuple[str, str], int]:
    """Returns the tier that tries each plan: 0 for ordinary tests, 1 for long ones, 2 for neither."""
    files: dict[str, set[str]] = defaultdict(set)
    for item in items:
        if (plan := plan_of(item)) is not None:
            files[plan[0]].add(plan[1])
    tiers = {}
    for file, names in files.items():
        drawn = sorted(names.difference(PLANS_ALWAYS))
        generator(text, f"plans {file}").shuffle(drawn)
        share = PLANS_SHARES[file].part(part, generator(text, f"part of plans {file}"))
        for number, name in enumerate(drawn):
            tiers[file, name] = (number >= share.quick) + (number >= share.quick + share.long)
    return tiers


def group_of(item: pytest.Item) -> str | None:
    """Returns the group of a test: the one that its mark names, or its function or file if they have a share."""
    mark = item.get_closest_marker("drawn")
    if mark is not None:
        return str(mark.args[0])
    file = item.nodeid.partition("::")[0]
    own = [group for group in (item.nodeid.partition("[")[0], file) if group in SHARES]
    return own[0] if own else _GROUPS.get(file)


def draw(items: Sequence[pytest.Item], text: str, part: float) -> set[pytest.Item]:
    """Marks the tests as long that a part of all shares puts into the long tier; returns those that no tier runs."""
    left_out: set[pytest.Item] = set()
    tiers = tier_of_plans(items, text, part)
    for item in items:
        tier = tiers.get(plan_of(item) or ("", ""), 0)
        if tier == 1:
            item.add_marker(pytest.mark.long)
        elif tier == 2:
            left_out.add(item)
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item.nodeid):
        group = group_of(item)
        if group is not None and item not in left_out and not item.get_closest_marker("slow"):
            groups[group].append(item)
    for group, members in groups.items():
        rng = generator(text, group)
        share = SHARES[group].part(part, generator(text, f"part of {group}"))
        ordinary = [item for item in members if not item.get_closest_marker("long")]
        quick = set(rng.sample(ordinary, len(ordinary))[: share.quick])
        others = [item for item in members if item not in quick]
        long = set(rng.sample(others, len(others))[: share.long])
        for item in long:
            item.add_marker(pytest.mark.long)
        left_out.update(item for item in others if item not in long)
    return left_out
