"""A publication wakes the runs of the same program that follow the stream, and no others."""

from strandline.spark.query.publications import Publications


def test_a_publication_wakes_those_that_follow_its_stream() -> None:
    found, woken = Publications(), []
    found.follow(a := lambda: woken.append("a"), lambda: ["one", "two"])
    found.follow(lambda: woken.append("b"), lambda: ["two"])
    for stream in ("one", "two", "three"):
        found.published(stream)
    assert woken == ["a", "a", "b"]
    found.unfollow(a)
    found.published("one")
    found.published("two")
    assert woken == ["a", "a", "b", "b"]


def test_the_streams_may_change_from_publication_to_publication() -> None:
    found, woken, streams = Publications(), [], ["one"]
    found.follow(lambda: woken.append(list(streams)), lambda: streams)
    found.published("two")
    streams[:] = ["two"]
    found.published("two")
    assert woken == [["two"]]


def test_a_stream_is_written_here_as_long_as_one_run_writes_it() -> None:
    found = Publications()
    assert not found.writes_all(["one"])
    for _ in range(2):
        found.begin_writing("one")
    assert found.writes_all(["one"])
    assert not found.writes_all(["one", "two"])
    found.end_writing("one")
    assert found.writes_all(["one"])
    found.end_writing("one")
    assert not found.writes_all(["one"])
