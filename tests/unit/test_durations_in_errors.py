"""Errors say durations as a user writes them, and advise only what the option allows."""

import pytest

import strandline as sl


def test_an_advance_larger_than_the_size_is_refused_in_hours() -> None:
    with pytest.raises(sl.OptionError, match="advance=2 hours is larger than size=1 hour"):
        sl.time_window("1 hour", advance="2 hours")


def test_plain_numbers_of_an_integer_time_column_stay_numbers() -> None:
    with pytest.raises(sl.OptionError, match="advance=20 is larger than size=10"):
        sl.time_window(10, advance=20)


def test_a_map_in_the_state_of_a_keyed_function_is_refused_with_types_that_it_may_have() -> None:
    with pytest.raises(sl.OptionError, match="use integers, floats") as refused:
        sl.keyed(state="seen map<string,long>", output="n long")(lambda state, row, out: 0)
    assert "StructType" not in str(refused.value)
