"""`sl.testing.check_operator`: whether an operator's results are the same however its input is cut, and after restores.

The code of a user's operator does not show whether it depends on how its tuples are cut into tables, or whether it
saves all of its state. So the check tries it out: cuts, saved states, losses and restores, other objects of the class
beside it. Then it looks for the smallest script that still makes a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NoReturn

import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.errors import InputError, NotRepeatableError, OptionError
from strandline.log.stream.column_types import fields_of
from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.keyed.keyed_function import KeyedFunction
from strandline.operators.one_table import GivenInput
from strandline.operators.operator import Definition
from strandline.operators.partition_wide.definition import PartitionWideDefinition
from strandline.operators.partition_wide.user_operator import UserOperator
from strandline.schema_text import schema_json
from strandline.testing.operator_script import Script, Scripted, in_order, script_text, scripts

_SMALLER_MAX = 400
"""So many runs go into making a script smaller."""


def check_operator(
    operator: UserOperator | KeyedFunction,
    tables: pa.Table | Sequence[pa.Table],
    *,
    seed: int = 0,
    runs: int = 50,
    key: str | Sequence[str] = (),
    time: str | None = None,
) -> None:
    """Raises NotRepeatableError if results depend on how these tuples are cut, on restores, or on other objects.

    The tuples are those of one partition, in their order; where one table ends says nothing. `time` is the input's time
    column, if there can be doubt; `key` the key columns, which functions need. The same seed tries out the same.
    """
    given = [tables] if isinstance(tables, pa.Table) else list(tables)
    if not given or not sum(table.num_rows for table in given):
        raise OptionError("check_operator was given no tuples", todo="pass some hundred tuples")
    tuples = pa.concat_tables(given).combine_chunks()
    columns = {f["name"]: f["type"] for f in fields_of(schema_json(tuples.schema))}
    definition = _definition(operator, columns, (key,) if isinstance(key, str) else tuple(key), time)
    numbered = tuples.append_column(OFFSET, pa.array(range(tuples.num_rows), pa.int64()))
    last = int(pa.compute.max(tuples.column(definition.times[0]).cast(pa.int64())).as_py()) + 1
    if isinstance(definition, KeyedDefinition):
        last += definition.reach
    _Check(Scripted(definition, numbered, last), seed).all(runs)


def _definition(operator: Any, columns: dict[str, Any], key: tuple[str, ...], time: str | None) -> Definition:
    name = time or _time_of(operator, columns)
    if isinstance(operator, UserOperator):
        return PartitionWideDefinition.over(operator, GivenInput(columns, key, name, 0))
    if not key:
        raise OptionError("check_operator needs the key columns of a function", todo='write key="item_id"')
    return KeyedDefinition.of(operator, GivenInput(columns, key, name, 0))


def _time_of(operator: Any, columns: dict[str, Any]) -> str:
    """Returns the input's time column: that of the output, or the only timestamp."""
    stamps = [name for name, kind in columns.items() if str(kind).startswith("timestamp")]
    if (named := getattr(operator, "time", None)) in columns:
        return str(named)
    if len(stamps) == 1:
        return stamps[0]
    raise OptionError("check_operator does not know which column is the time", todo='write time="at"')


class _Check:
    """The scripts of one seed over one operator."""

    def __init__(self, scripted: Scripted, seed: int) -> None:
        self._scripted = scripted
        self._seed = seed
        self._tries = 0

    def all(self, runs: int) -> None:
        """Tries them one after the other; raises about the first that makes a difference."""
        right = self._scripted.in_one_go()
        if _difference(right, self._scripted.in_one_go()) is not None:
            self._differs(
                (),
                self._scripted,
                "two objects over the same tuples return other results",
                "what a class computes may only depend on its arguments, its tuples and its state: not on the clock, "
                "on random numbers without a seed, or on what objects of a class share, such as a list that is a "
                "class attribute or a default argument",
            )
        for script in scripts(Random(self._seed), self._scripted.tuples.num_rows, runs):
            if self._goes_wrong(script, self._scripted) is not None:
                self._raise_about(script)

    def _goes_wrong(self, script: Script, scripted: Scripted) -> str | None:
        """Returns what is wrong after this script; None if nothing is."""
        self._tries += 1
        right = scripted.in_one_go()
        try:
            return _difference(right, scripted.results(script))
        except InputError as problem:
            return problem.what

    def _raise_about(self, script: Script) -> NoReturn:
        small, scripted = self._smaller(script)
        what = self._goes_wrong(small, scripted)
        happened = {happening for _, happening in small}
        todo = next((advice for happening, advice in _ADVICE if happening in happened), _ADVICE[-1][1])
        self._differs(small, scripted, what or "results differ from time to time", todo)

    def _smaller(self, script: Script) -> tuple[Script, Scripted]:
        """Returns a part of the script, and as few of the first tuples as still make a difference."""
        scripted, self._tries = self._scripted, 0
        while self._tries < _SMALLER_MAX:
            fewer = self._with_fewer(script, scripted)
            if fewer is None:
                break
            script, scripted = fewer
        return script, scripted

    def _with_fewer(self, script: Script, scripted: Scripted) -> tuple[Script, Scripted] | None:
        many = scripted.tuples.num_rows
        for size in (len(script) // 2, 1):
            for first in range(0, len(script), size) if size else ():
                part = (*script[:first], *script[first + size :])
                if part and self._goes_wrong(part, scripted) is not None:
                    return part, scripted
        for number, (place, happening) in enumerate(script):
            plain: Script = (*script[:number], (place, "cut"), *script[number + 1 :])
            if happening != "cut" and self._goes_wrong(plain, scripted) is not None:
                return plain, scripted
        for less in (many // 2, many // 4, many // 16, 1):
            last = max(place for place, _ in script)
            if less and many - less >= last and self._goes_wrong(script, scripted.first(many - less)) is not None:
                return script, scripted.first(many - less)
        for number, (place, happening) in enumerate(script):
            for earlier in (place // 2, place - 1):
                moved = in_order([*script[:number], (earlier, happening), *script[number + 1 :]])
                if 0 < earlier < place and self._goes_wrong(moved, scripted) is not None:
                    return moved, scripted
        return None

    def _differs(self, script: Script, scripted: Scripted, what: str, todo: str) -> NoReturn:
        name = getattr(getattr(scripted.definition, "of", None), "name", "the function")
        raise NotRepeatableError(
            f"{name}: {what}",
            where=f"{script_text(script, scripted.tuples.num_rows)} (seed={self._seed})",
            todo=todo,
        )


_ADVICE: Sequence[tuple[str, str]] = (
    ("stranger", "objects of the class must share nothing that changes: no class attributes, no default arguments"),
    ("crash", "get_checkpoint has to return all that changes, and restore_checkpoint to put all of it back"),
    ("save", "get_checkpoint must change nothing of its object"),
    ("advance", "advance(5), then advance(9) must return what advance(9) does, once, wherever tuples are in between"),
    ("cut", "process(a), then process(b) must return what process(a + b) does, and leave the same state"),
)


def _difference(right: pa.Table, found: pa.Table) -> str | None:
    """Returns how results differ, to the bit; None if they do not."""
    many = min(right.num_rows, found.num_rows)
    places = [place for name in right.column_names for place in _places(right, found, name, many)]
    if places:
        row, name = min(places, key=lambda place: place[0])
        ours, theirs = found.column(name)[row].as_py(), right.column(name)[row].as_py()
        return f"result {row} has {name} = {ours!r}, in one go it has {theirs!r}"
    if right.num_rows != found.num_rows:
        return f"there are {found.num_rows} results, in one go there are {right.num_rows}"
    return None


def _places(right: pa.Table, found: pa.Table, name: str, many: int) -> Iterable[tuple[int, str]]:
    """Yields the first result that differs in a column."""
    ours, theirs = (_bits(table.column(name).slice(0, many)) for table in (found, right))
    if not ours.equals(theirs):
        yield next(row for row in range(many) if not ours[row : row + 1].equals(theirs[row : row + 1])), name


def _bits(column: pa.ChunkedArray) -> pa.Array:
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_float64(array.type) or pa.types.is_float32(array.type):
        return array.view(pa.int64() if pa.types.is_float64(array.type) else pa.int32())
    return array
