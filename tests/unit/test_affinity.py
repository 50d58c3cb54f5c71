"""Where a task says it ran: under the name by which Spark would send the next one there."""

import random
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.spark.operator import affinity
from strandline.spark.operator.affinity import balanced, spark_host

ASK = "from strandline.spark.operator.affinity import spark_host; print(spark_host())"
DAEMON = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ASK!r}], check=True)"
EXECUTOR = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {DAEMON!r}], check=True)"
HAS_PROC = Path("/proc/self/cmdline").exists()


@pytest.fixture(autouse=True)
def _ask_anew() -> Iterator[None]:
    spark_host.cache_clear()
    yield
    spark_host.cache_clear()


def asked_below(*command: str) -> str:
    """What a grandchild of a process with this command says."""
    done = subprocess.run([sys.executable, "-c", EXECUTOR, *command], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(not HAS_PROC, reason="needs /proc")
@pytest.mark.parametrize(
    "backend",
    [
        "org.apache.spark.executor.CoarseGrainedExecutorBackend",
        "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
    ],
)
def test_a_task_takes_the_name_under_which_its_executor_registered(backend: str) -> None:
    assert asked_below(backend, "--executor-id", "7", "--hostname", "10.1.2.3", "--cores", "1") == "10.1.2.3"


@pytest.mark.skipif(not HAS_PROC, reason="needs /proc")
def test_other_programs_with_a_hostname_are_not_taken_for_an_executor() -> None:
    assert asked_below("ssh", "--hostname", "10.1.2.3") == socket.gethostname()
    assert asked_below("CoarseGrainedExecutorBackend", "--hostname") == socket.gethostname()


def test_without_a_look_at_processes_the_environment_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "_commands_above", lambda: iter(()))
    for name in ("SPARK_EXECUTOR_POD_IP", "NM_HOST", "SPARK_LOCAL_HOSTNAME"):
        monkeypatch.delenv(name, raising=False)
    assert spark_host() == socket.gethostname()
    for name in ("SPARK_LOCAL_HOSTNAME", "NM_HOST", "SPARK_EXECUTOR_POD_IP"):
        spark_host.cache_clear()
        monkeypatch.setenv(name, f"{name} has it")
        assert spark_host() == f"{name} has it"


# ---------------------------------------------------------------------- spreading


@pytest.mark.parametrize(
    ("hosts", "live", "wanted"),
    [
        ("aabb", "ab", "aabb"),
        ("aaab", "ab", "aa-b"),
        ("aaaa", "ab", "aa--"),
        ("aabba", "ab", "aabba"),  # 3 and 2 is as even as can be
        ("aabb", "b", "--bb"),
        ("aabb", "bc", "--bb"),
        ("aabb", "abc", "aabb"),
        ("aaaabbbb", "abc", "aaa-bbb-"),
        ("a-", "ab", "a-"),
        ("aa", "", "--"),
        ("", "ab", ""),
    ],
)
def test_partitions_keep_their_host_unless_it_is_gone_or_has_too_many(hosts: str, live: str, wanted: str) -> None:
    names = ["" if host == "-" else host for host in hosts]
    assert balanced(names, frozenset(live)) == ["" if host == "-" else host for host in wanted]


@pytest.mark.parametrize("live", [1, 2, 3, 7])
def test_after_some_batches_no_host_has_more_than_its_share(live: int) -> None:
    rng = random.Random(live)
    names = [f"host{i}" for i in range(live)]
    hosts = [names[0]] * 20
    moved = 0
    for _ in range(100):
        wanted = balanced(hosts, names)
        now = [host or rng.choice(names) for host in wanted]
        moved += sum(a != b for a, b in zip(hosts, now, strict=True))
        hosts = now
    assert max(Counter(hosts).values()) == -(-20 // live)
    assert balanced(hosts, names) == hosts
    assert moved <= 60
