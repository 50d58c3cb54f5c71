"""What is published of a stream at one moment: it travels as text, and what became of the stream meanwhile is seen."""

from dataclasses import replace

import pytest

from strandline.errors import OptionError, StreamMismatchError, TruncatedError
from strandline.log.operator_state.guesses import Guesses
from strandline.log.reading.bounds import Bounds
from strandline.log.reading.moment import Moment
from strandline.log.stream.kinds import Kind
from strandline.log.upkeep import retention
from strandline.spark.read.read_options import ReadOptions
from tests.support.written_outage import STABLE, story


def test_it_is_the_same_in_another_process() -> None:
    moment = Moment.of(story().log, tentative=True)
    assert moment.extents == ((0, 9), (0, 0))
    assert moment.guesses == {0: Guesses(5, 9, 20)}
    assert Moment.from_text(moment.to_text()) == moment
    assert Moment.of(story().log).guesses == {}


def test_what_comes_later_is_no_part_of_it() -> None:
    output = story()
    moment = Moment.of(output.log, tentative=True)
    output.append([(Kind.UNDO, 0), (Kind.RESULT, 30), (Kind.REC_DONE, 0)], STABLE, 30)
    assert moment.extent(output.log, 0) == (0, 9)
    assert moment.guesses == {0: Guesses(5, 9, 20)}


def test_it_is_within_the_offsets_that_were_asked_for() -> None:
    assert Moment.of(story().log, Bounds({0: 3}, {0: 7}, None, None)).extents[0] == (3, 7)
    assert Moment.of(story().log, Bounds({0: 3}, {0: 70}, None, None)).extents[0] == (3, 9)


def test_what_was_dropped_since_is_left_out_unless_it_was_asked_for() -> None:
    output = story()
    whole, part = Moment.of(output.log), Moment.of(output.log, Bounds({0: 1}, {}, None, None))
    retention.truncate(output.log, before_offset={0: 6})
    assert whole.extent(output.log, 0) == (6, 9)
    with pytest.raises(TruncatedError, match="offset 1"):
        part.extent(output.log, 0)


def test_another_stream_in_its_place_is_none_of_its_business() -> None:
    output = story()
    moment = replace(Moment.of(output.log), stream="the one before")
    with pytest.raises(StreamMismatchError, match="replaced by another one since this DataFrame was made"):
        moment.extent(output.log, 0)


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"stream": "x", "extents": [1], "guesses": {}}'])
def test_an_option_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"option moment is for Stream\.read"):
        ReadOptions.of({"path": "streams/x", "moment": text})


def test_a_streaming_read_has_none() -> None:
    options = ReadOptions.of({"path": "streams/x", "moment": Moment.of(story().log).to_text()})
    with pytest.raises(OptionError, match="are for batch reads"):
        options.require_streaming()
