"""Several inputs read as one: always the order that the plain specification has, however it is cut."""

from __future__ import annotations

from random import Random

import pytest

from strandline.log.upkeep import retention
from strandline.units import END_OF_TIME
from tests.specification.plain_serialised_input import plain_serialised
from tests.support.serialised_streams import Feed, Place, Reader, make_feeds


def expected(feeds: list[Feed], partition: int, until: int = END_OF_TIME) -> list[Place]:
    found = plain_serialised([[t for _, _, t in feed.rows[partition]] for feed in feeds], until)
    return [(one.input, one.offset) for one in found]


def some_commits(rng: Random, feeds: list[Feed]) -> None:
    """One of the inputs goes on, perhaps far."""
    feed = rng.choice(feeds)
    for _ in range(rng.choice([1, 1, 1, 8])):
        if rng.random() < 0.3:
            feed.beat()
        else:
            feed.append(rng.choice([0, 1, 5, 40, 200]))


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 56))])
def test_what_is_read_does_not_depend_on_cuts_nor_on_which_input_is_ahead(seed: int) -> None:
    rng = Random(seed)
    feeds = make_feeds(rng)
    reader = Reader(rng, [feed.log for feed in feeds])
    patience, tuples_max = rng.choice([1.0, 0.9, 0.5]), rng.choice([1, 10, 100, 10_000])
    for _ in range(16):
        some_commits(rng, feeds)
        if rng.random() < 0.2:
            rng.choice(feeds).tidy()
        if rng.random() < 0.2:
            reader.register()
            feed = rng.choice(feeds)
            before = {p: rng.randint(0, len(rows)) for p, rows in enumerate(feed.rows)}
            retention.truncate(feed.log, before_offset=before, yield_to_consumers=True)
        if rng.random() < 0.7:
            reader.batch(tuples_max, patience)
        for p, marks in enumerate(reader.marks):
            if marks.stands.bound is not None:
                assert reader.got[p] == expected(feeds, p, marks.stands.bound)
        p = rng.randrange(len(reader.marks))
        first = rng.randint(reader.marks[p].oldest.ordinal, len(reader.got[p]))
        assert reader.replay(p, first) == reader.got[p][first:]
    for feed in feeds:
        feed.finish()
    while reader.batch(tuples_max, patience):
        pass
    for p in range(len(reader.marks)):
        assert reader.got[p] == expected(feeds, p)
        assert reader.marks[p].stands.bound == END_OF_TIME
