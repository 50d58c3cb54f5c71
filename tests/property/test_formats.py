"""What is written is what is read, and what has changed since is not believed: manifests, snapshots, specs, leaves."""

from datetime import UTC
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.errors import CorruptionError
from strandline.log.index.index import Child, Snapshot
from strandline.log.index.leaf import Leaf
from strandline.log.stream import commit_kinds
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import CollectCommit, CompactCommit, ConsumerCommit, TruncateCommit
from strandline.log.stream.log_state import LogState, Registration
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.times import time_value
from strandline.units import duration_us, time_text
from tests.support.items import item_spec
from tests.support.plain_codec import PlainLeaf

integers = st.integers(-(1 << 63), (1 << 63) - 1)
offsets = st.integers(0, (1 << 63) - 1)
texts = st.text(max_size=8)
documents = st.recursive(
    st.none() | st.booleans() | integers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
sources = st.none() | st.dictionaries(texts, documents, max_size=2)
PARTITIONS = 2


@st.composite
def blocks(draw: st.DrawFn, published_us: int, partition: int | None = None) -> Block:
    first = draw(st.integers(0, 1 << 40))
    return Block(
        partition=draw(st.integers(0, PARTITIONS)) if partition is None else partition,
        file=draw(texts),
        first=first,
        end=first + draw(st.integers(1, 100)),
        rows=draw(st.dictionaries(texts, st.integers(0, 100), max_size=2)),
        time_min=draw(integers),
        time_max=draw(integers),
        size_bytes=draw(offsets),
        checksum=draw(texts),
        published_us=published_us,
    )


@st.composite
def manifests(draw: st.DrawFn) -> Commit:
    common: dict[str, Any] = {"seq": draw(offsets), "stream": draw(texts), "published_us": draw(offsets)}
    kind = draw(st.sampled_from(["append", "compact", "truncate", "collect", "consumer"]))
    block = blocks(common["published_us"])
    if kind == "append":
        chosen = [b for b in (draw(st.none() | blocks(common["published_us"], p)) for p in range(PARTITIONS + 1)) if b]
        ends = draw(st.lists(offsets, min_size=PARTITIONS + 1, max_size=PARTITIONS + 1))
        for b in chosen:
            ends[b.partition] = b.end
        return AppendCommit(
            blocks=tuple(chosen),
            ends=tuple(ends),
            boundaries=tuple(draw(st.none() | integers) for _ in range(PARTITIONS)),
            time_max=draw(st.none() | integers),
            writer=draw(st.none() | st.builds(Writer, texts, texts, offsets)),
            source=draw(sources),
            **common,
        )
    if kind == "compact":
        return CompactCommit(blocks=tuple(draw(st.lists(block, min_size=1, max_size=2))), **common)
    if kind == "truncate":
        return TruncateCommit(starts=tuple(draw(st.lists(offsets, max_size=3))), **common)
    if kind == "collect":
        files = tuple(draw(st.lists(texts, max_size=3)))
        return CollectCommit(files=files, deleted_through=draw(integers), **common)
    needs = draw(st.none() | st.lists(offsets, max_size=3).map(tuple))
    return ConsumerCommit(consumer=draw(texts), needs=needs, **common)


@given(manifests())
def test_a_manifest_comes_back_from_its_bytes(m: Commit) -> None:
    assert commit_kinds.decode(commit_kinds.encode(m), "here") == m


@settings(max_examples=30, deadline=None)
@given(manifests(), st.randoms(use_true_random=False))
def test_every_changed_byte_of_a_manifest_is_noticed(m: Commit, rng: Random) -> None:
    data = commit_kinds.encode(m)
    for position in range(len(data)):
        rotten = bytearray(data)
        rotten[position] ^= rng.randint(1, 255)
        with pytest.raises(CorruptionError):
            commit_kinds.decode(bytes(rotten), "here")
    for shorter in range(len(data)):
        with pytest.raises(CorruptionError):
            commit_kinds.decode(data[:shorter], "here")
    with pytest.raises(CorruptionError):
        commit_kinds.decode(data + b" ", "here")


@given(st.binary(max_size=60))
def test_bytes_of_somebody_else_are_no_manifest(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        commit_kinds.decode(data, "here")


numbers = st.lists(offsets, min_size=PARTITIONS + 1, max_size=PARTITIONS + 1).map(tuple)
registrations = st.builds(Registration, texts, st.lists(offsets, max_size=2).map(tuple), offsets, offsets)
states = st.builds(
    LogState,
    seq=offsets,
    starts=numbers,
    ends=numbers,
    boundaries=st.lists(st.none() | integers, min_size=PARTITIONS, max_size=PARTITIONS).map(tuple),
    time_max=st.none() | integers,
    writer=st.none() | st.builds(Writer, texts, texts, offsets),
    source=sources,
    published_us=offsets,
    announced=st.lists(offsets, max_size=3).map(tuple),
    consumers=st.lists(registrations, max_size=2).map(tuple),
)
children = st.builds(
    Child,
    file=texts,
    checksum=texts,
    level=st.integers(0, 9),
    is_leaf=st.booleans(),
    entries=offsets,
    tuples=offsets,
    size_bytes=offsets,
    firsts=numbers,
    ends=numbers,
    time_max=st.none() | integers,
    boundary=st.none() | integers,
    seq=offsets,
)


@given(texts, states, st.lists(children, max_size=2).map(tuple))
def test_a_snapshot_comes_back_from_its_bytes(stream: str, state: LogState, below: tuple[Child, ...]) -> None:
    snapshot = Snapshot(stream, state, below)
    assert Snapshot.decode(snapshot.encode(), "here") == snapshot


@given(
    st.integers(1, 10_000),
    st.none() | st.integers(0, 1 << 62),
    st.none() | st.integers(0, 1 << 62),
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}", fullmatch=True),
    texts,
    st.none() | st.dictionaries(texts, documents, max_size=2),
)
def test_a_spec_comes_back_from_its_bytes(
    partitions: int, lateness: int | None, retention: int | None, id_: str, by: str, upstream: dict[str, Any] | None
) -> None:
    fields = item_spec().schema
    spec = StreamSpec(id_, fields, ("k",), "t", partitions, lateness, retention, by, 7, upstream)
    assert StreamSpec.from_json(spec.to_json(), "here") == spec


# ---------------------------------------------------------------------- the leaf and its specification


@st.composite
def leaf_entries(draw: st.DrawFn) -> list[Block]:
    """Blocks that follow each other in their partitions, perhaps with gaps, as compactions into other leaves leave."""
    entries: list[Block] = []
    for partition in range(PARTITIONS + 1):
        offset = draw(st.integers(0, 3))
        for _ in range(draw(st.integers(0, 4))):
            size, time = draw(st.integers(1, 3)), draw(st.integers(-5, 5))
            spread = draw(st.integers(0, 3))
            entries.append(
                Block(
                    partition, f"f{len(entries)}", offset, offset + size, {"result": size}, time, time + spread, 9, "x"
                )
            )
            offset += size + draw(st.sampled_from([0, 0, 2]))
    return draw(st.permutations(entries))


bounds = st.none() | st.integers(-6, 9)


@settings(deadline=None, max_examples=60)
@given(leaf_entries(), st.integers(0, PARTITIONS), st.integers(0, 9), st.integers(0, 12), bounds, bounds, st.randoms())
def test_a_leaf_does_what_the_plain_leaf_does(
    entries: list[Block],
    partition: int,
    first: int,
    end: int,
    time_from: int | None,
    time_until: int | None,
    rng: Random,
) -> None:
    leaf, plain = Leaf.of(entries), PlainLeaf.of(entries)
    for ours, theirs in ((leaf, plain), (Leaf.decode(leaf.encode()), PlainLeaf.decode(plain.encode()))):
        assert len(ours) == len(theirs)
        assert list(ours.all()) == list(theirs.all())
        found = list(ours.blocks(partition, first, end, time_from, time_until))
        assert found == list(theirs.blocks(partition, first, end, time_from, time_until))
        for name in ("partition", "first", "end", "size_bytes"):
            assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
    drop = [rng.random() < 0.5 for _ in entries]
    more = [Block(partition, "more", 50, 51, {"result": 1}, 0, 0, 9, "x")] if rng.random() < 0.5 else []
    edited = leaf.edited(np.array(drop, dtype=bool), more)
    assert list(edited.all()) == list(plain.edited(drop, more).all())
    middle = len(entries) // 2
    halves = entries[:middle], entries[middle:]
    joined = Leaf.joined([Leaf.of(half) for half in halves])
    assert (
        list(joined.all()) == list(PlainLeaf.joined([PlainLeaf.of(half) for half in halves]).all()) == list(leaf.all())
    )


# ---------------------------------------------------------------------- units


@given(st.integers(0, 1 << 40), st.sampled_from([("us", 1), ("ms", 1_000), ("s", 1_000_000), ("min", 60_000_000)]))
def test_a_duration_is_its_number_times_its_unit(amount: int, unit: tuple[str, int]) -> None:
    # Up to 2**53 a float counts exactly.
    if amount * unit[1] < 1 << 53:
        assert duration_us(f"{amount} {unit[0]}", "option") == amount * unit[1]


@given(st.datetimes())
def test_a_time_comes_back_from_its_text(moment: Any) -> None:
    value = time_value(moment, "option", "timestamp", UTC)
    assert time_value(moment.isoformat(), "option", "timestamp", UTC) == value
    shown = time_value(time_text(value, is_timestamp=True), "option", "timestamp", UTC)
    assert shown == value // 1_000 * 1_000
