"""Checks that the stream still has what its registered consumers need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from strandline.errors import KeyMissingError, StrandlineError
from strandline.log.audit.problem import Problem
from strandline.log.storage.storage import Storage, is_temporary
from strandline.log.stream.log_state import LogState
from strandline.log.stream.manifest import read_sealed
from strandline.log.upkeep import consumer_registry


@dataclass(frozen=True, slots=True)
class Word:
    """The content of a consumer's own file: how far it has come since it was registered with the commit `seq`."""

    needs: tuple[int, ...]
    seq: int


def words(storage: Storage) -> tuple[dict[str, Word], dict[str, Problem]]:
    """Returns the contents of the consumers' files, by name, and the problem of each that cannot be read."""
    found: dict[str, Word] = {}
    rotten: dict[str, Problem] = {}
    for listed in storage.list(consumer_registry.FOLDER):
        if is_temporary(listed.key):
            continue
        name = listed.key.removeprefix(f"{consumer_registry.FOLDER}/").removesuffix(".json")
        try:
            body = read_sealed(storage, listed.key)
            found[name] = Word(tuple(int(need) for need in body["needs"]), int(body["seq"]))
        except KeyMissingError:
            continue  # unregistered a moment ago
        except (StrandlineError, KeyError, TypeError, ValueError) as problem:
            what = problem.what if isinstance(problem, StrandlineError) else repr(problem)
            rotten[name] = Problem(
                "consumer",
                f"how far consumer {name!r} has come cannot be read: {what}",
                file=listed.key,
                todo="let it run, it writes the file anew; until then what it needed when it registered is kept",
            )
    return found, rotten


def contradictions(state: LogState, before: Mapping[str, Word], after: Mapping[str, Word]) -> Iterator[Problem]:
    """Consumers that need what is gone or never was.

    `before` was read before the state and `after` after it, so that neither a consumer nor a truncation in between
    makes a difference.
    """
    for registered in state.consumers:
        name = registered.name
        file = f"{consumer_registry.FOLDER}/{name}.json"
        word = before.get(name)
        read = word.needs if word and word.seq == registered.seq else ()
        for p, (need, end) in enumerate(zip(read, state.ends, strict=False)):
            if need > end:
                what = f"consumer {name!r} has read up to offset {need}, the partition ends at {end}"
                todo = "tuples that it has seen are gone: find out why, compare its results, then register it again"
                yield Problem("consumer", what, file, p, end, need, todo)
        word = after.get(name)
        if word and word.seq > state.seq:
            continue  # registered anew since
        needs = word.needs if word and word.seq == registered.seq else registered.needs
        for p, (need, start) in enumerate(zip(needs, state.starts, strict=False)):
            if need < start:
                what = f"consumer {name!r} needs offset {need}, the partition begins at {start}"
                yield Problem("consumer", what, file, p, need, start, f"start it at offset {start}, or unregister it")
