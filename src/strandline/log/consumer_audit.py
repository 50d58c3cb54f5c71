"""Whether the registered consumers can be read, and need what the stream has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from strandline.errors import KeyMissingError, StrandlineError
from strandline.log.consumers import Consumer
from strandline.log.log import Log
from strandline.log.manifest import unseal
from strandline.log.problem import Problem
from strandline.log.state import LogState

_FOLDER = "consumers"


def consumers_and_problems(log: Log) -> tuple[list[Consumer], list[Problem]]:
    """Every consumer that can be read, and what is wrong with the files of the others."""
    found: list[Consumer] = []
    problems: list[Problem] = []
    for listed in log.storage.list(_FOLDER):
        if not listed.key.endswith(".json"):
            continue  # a temporary file of a put that is under way
        try:
            body = unseal(log.storage.read(listed.key), listed.key)
            consumer = Consumer(str(body["name"]), tuple(int(n) for n in body["needs"]), int(body["updated_us"]))
            if len(consumer.needs) != log.spec.partitions:
                raise ValueError(f"{len(consumer.needs)} offsets for {log.spec.partitions} partitions")
        except KeyMissingError:
            continue  # unregistered a moment ago
        except (StrandlineError, KeyError, TypeError, ValueError) as problem:
            what = problem.what if isinstance(problem, StrandlineError) else repr(problem)
            problems.append(
                Problem(
                    "consumer",
                    f"a consumer cannot be read: {what}",
                    file=listed.key,
                    todo="delete the file if the consumer is gone, else let it register again; truncate stops at it",
                )
            )
        else:
            found.append(consumer)
    return found, problems


def ahead_of(consumers: Iterable[Consumer], state: LogState) -> Iterator[Problem]:
    """Consumers that have read what is not there. They must have been read before the state was."""
    for consumer in consumers:
        for p, (need, end) in enumerate(zip(consumer.needs, state.ends, strict=False)):
            if need > end:
                yield Problem(
                    "consumer",
                    f"consumer {consumer.name!r} has read up to offset {need}, the partition ends at {end}",
                    file=f"{_FOLDER}/{consumer.name}.json",
                    partition=p,
                    first=end,
                    end=need,
                    todo="tuples that it has seen are gone: find out why, compare its results, then register it again",
                )


def behind(consumers: Iterable[Consumer], state: LogState) -> Iterator[Problem]:
    """Consumers that need what was dropped. They must have been read after the state was."""
    for consumer in consumers:
        for p, (need, start) in enumerate(zip(consumer.needs, state.starts, strict=False)):
            if need < start:
                yield Problem(
                    "consumer",
                    f"consumer {consumer.name!r} needs offset {need}, the partition begins at {start}",
                    file=f"{_FOLDER}/{consumer.name}.json",
                    partition=p,
                    first=need,
                    end=start,
                    todo=f"start it at offset {start}, or unregister it",
                )
