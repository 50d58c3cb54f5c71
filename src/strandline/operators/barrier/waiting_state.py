"""The tuples of a barrier that wait, in one partition: open windows, with windows for their keys, and payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.operators.barrier.matching import INPUT, QUEUES, ROW, TUPLE_WORDS, Waiting
from strandline.operators.open_windows.arrays import Batch, State
from strandline.operators.open_windows.payloads import Payloads
from strandline.operators.open_windows.record import BY_KEY, KEY_AT, UNHASHED
from strandline.operators.open_windows.window_state import WindowState
from strandline.operators.operator import StateImage

_GARBAGE_MIN = 1 << 10
"""A state with fewer rows is not searched for those that are not needed."""
_KEY_BYTES = np.array([KEY_AT])
_OF_KEYS = "key_"
"""Before the names of the arrays of keys."""


class WaitingState(WindowState):
    """The tuples that wait. Each is an open window; `keys` are those of which tuples wait, `payloads` their columns."""

    def __init__(self, arrays: State, keys: WindowState, payloads: Sequence[Payloads]) -> None:
        self.keys = keys
        self.payloads = list(payloads)
        super().__init__(arrays, timed=False)

    @classmethod
    def without_tuples(cls, schemas: Sequence[pa.Schema]) -> WaitingState:
        """Returns a state in which no tuple waits."""
        keys = WindowState.empty(QUEUES + 2 * len(schemas), BY_KEY, timed=False)
        tuples = WindowState.empty(TUPLE_WORDS, UNHASHED, timed=False)
        return cls(tuples.arrays, keys, [Payloads(schema) for schema in schemas])

    @classmethod
    def held_by(cls, arrays: Mapping[str, npt.NDArray[Any]], schemas: Sequence[pa.Schema]) -> WaitingState:
        """Returns the state that these arrays hold; raises ValueError if they cannot be such a state."""
        own = dict(arrays)
        try:
            payloads = [
                Payloads(schema, own.pop(f"payload_{i}"), own.pop(f"chunks_{i}")) for i, schema in enumerate(schemas)
            ]
        except (KeyError, IndexError) as problem:
            raise ValueError(f"arrays of another state: {problem}") from None
        of_keys = {name.removeprefix(_OF_KEYS): own.pop(name) for name in arrays if name.startswith(_OF_KEYS)}
        keys = WindowState.revived(of_keys, QUEUES + 2 * len(schemas), timed=False)
        return cls(WindowState.revived(own, TUPLE_WORDS, timed=False).arrays, keys, payloads)

    def begin(self) -> None:
        """Begins a new trace."""
        self.grown = self.keys.grown = False
        self.keys.begin()
        for payload in self.payloads:
            payload.begin()
        super().begin()

    @property
    def for_kernels(self) -> Waiting:
        """The state as kernels take it; it is another one when arrays have grown."""
        return Waiting(self.arrays, self.trace, self.keys.arrays, self.keys.trace)

    def image(self) -> StateImage:
        """Returns all arrays by name, and of each the rows that were changed since `begin`."""
        tuples, keys = super().image(), self.keys.image()
        arrays: dict[str, npt.NDArray[Any]] = {**tuples.arrays, **{_OF_KEYS + n: a for n, a in keys.arrays.items()}}
        for i, payload in enumerate(self.payloads):
            arrays[f"payload_{i}"], arrays[f"chunks_{i}"] = payload.arena, payload.table
        if tuples.changed is None or keys.changed is None or any(payload.is_replaced for payload in self.payloads):
            return StateImage(arrays, None)
        changed = {**tuples.changed, **{_OF_KEYS + name: rows for name, rows in keys.changed.items()}}
        for i, payload in enumerate(self.payloads):
            changed[f"payload_{i}"] = payload.changed
            changed[f"chunks_{i}"] = slice(0, len(arrays[f"chunks_{i}"]))
        return StateImage(arrays, changed)

    def make_room(self) -> None:
        """Makes room for more tuples and keys, where there is none."""
        for state in (self, self.keys):
            if state.open_windows == state.room:
                state.grow()

    def keep_key_bytes(self, batch: Batch) -> None:
        """Takes over the bytes of new keys."""
        if len(batch.bytes):
            self.keys.keep_bytes(_KEY_BYTES, batch)

    def drop_garbage(self) -> None:
        """Copies together what is still needed of payloads and of keys' bytes, where more than half is not."""
        self.keys.drop_dead_bytes(_KEY_BYTES)
        if sum(payload.rows for payload in self.payloads) > 2 * self.open_windows + _GARBAGE_MIN:
            records, slots = self.arrays.records, self.open_slots()
            for i, payload in enumerate(self.payloads):
                own = slots[records[slots, INPUT] == i]
                payload.choose(records[own, ROW])
                records[own, ROW] = np.arange(len(own))
