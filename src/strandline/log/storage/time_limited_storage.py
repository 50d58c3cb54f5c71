"""Storage that is waited for no longer than some time: a store that neither answers nor fails is one that fails.

A hung mount, or an object store behind a network that drops everything, holds up its caller for as long as the client
waits, which may be for ever. Around such a store this one raises `StorageError` instead. What limits is the time
without an answer, not the time that a large value takes: values are read in pieces, each of which has all of that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from strandline.clock import stopwatch_s
from strandline.errors import StorageError
from strandline.log.storage.storage import TEMPORARY_PREFIX, Listed, Storage
from strandline.log.storage.timely_calls import SilentError, calls_on

Answer = TypeVar("Answer")

PIECE_BYTES = 1 << 20
"""So much is asked for at once of a store of which nothing is known. One that gives less than this within the limit
counts as one that does not answer."""
PIECE_BYTES_MAX = 256 << 20
_piece_bytes: dict[str, int] = {}
"""By address, how much this process asks for by now."""
_Pieces = list[bytes]  # here, where `list` is not that of a storage
_KEYS_AT_ONCE = 1_000
_NO_KEY = f"{TEMPORARY_PREFIX}probe"


class TimeLimitedStorage:
    """Another storage, of which each call raises `StorageError` if there is no answer within `limit_s`.

    A call that writes may then have taken effect or may still do so, as after any other error. While one is without an
    answer, all calls of this process on the same address fail at once (see `timely_calls`). A value larger than a
    piece is read by several calls: it is of one version only if its key is never replaced.
    """

    def __init__(self, inner: Storage, limit_s: float) -> None:
        self.url = inner.url
        self._inner = inner
        self._limit_s = limit_s

    def __repr__(self) -> str:
        return f"TimeLimitedStorage({self._inner!r}, {self._limit_s:g})"

    def __reduce__(self) -> tuple[object, ...]:
        return (TimeLimitedStorage, (self._inner, self._limit_s))

    def create(self, key: str, data: bytes) -> None:
        self._ask("create", key, partial(self._inner.create, key, data))

    def put(self, key: str, data: bytes) -> None:
        self._ask("write", key, partial(self._inner.put, key, data))

    def read(self, key: str) -> bytes:
        size = self._piece_bytes
        first = self._piece(key, partial(self._begun, key, size), size)
        if len(first) != size:
            return first
        pieces, end = [memoryview(first)], size
        while True:
            # Some stores refuse a range behind the end, so each begins with a byte that is there.
            size = self._piece_bytes
            piece = self._piece(key, partial(self._inner.read_range, key, end - 1, end + size), size)
            pieces.append(memoryview(piece)[1:])
            end += len(piece) - 1
            if len(piece) <= size:
                return b"".join(pieces)

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        pieces: _Pieces = []
        while begin < end or not pieces:
            size = min(self._piece_bytes, end - begin)
            pieces.append(self._piece(key, partial(self._inner.read_range, key, begin, begin + size), size))
            if len(pieces[-1]) < size:
                break  # it is not as long as was thought; the caller has to see that
            begin += size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _begun(self, key: str, size: int) -> bytes:
        """Reads the first bytes of a value."""
        try:
            return self._inner.read_range(key, 0, size)
        except StorageError as problem:
            if type(problem) is not StorageError:
                raise
            return self._inner.read(key)  # of an empty value some stores have no range

    @property
    def _piece_bytes(self) -> int:
        return _piece_bytes.get(self.url, PIECE_BYTES)

    def _piece(self, key: str, work: Callable[[], bytes], size: int) -> bytes:
        """Reads a piece; makes the next ones larger if the store was fast, for each costs a request and a copy."""
        began_s = stopwatch_s()
        piece = self._ask("read", key, work)
        took = (stopwatch_s() - began_s) / self._limit_s
        if took > 1 / 2:
            _piece_bytes[self.url] = max(self._piece_bytes // 2, PIECE_BYTES)
        elif took < 1 / 8 and len(piece) >= size == self._piece_bytes:
            _piece_bytes[self.url] = min(2 * size, PIECE_BYTES_MAX)
        return piece

    def exists(self, key: str) -> bool:
        return self._ask("look for", key, partial(self._inner.exists, key))

    def list(self, prefix: str) -> Iterator[Listed]:
        found = self._ask("list", prefix, partial(self._inner.list, prefix))
        while some := self._ask("list", prefix, lambda: [*islice(found, _KEYS_AT_ONCE)]):
            yield from some

    def delete(self, key: str) -> None:
        self._ask("delete", key, partial(self._inner.delete, key))

    def settle(self, prefix: str) -> None:
        self._ask("settle", prefix, partial(self._inner.settle, prefix))

    def local_path(self, key: str) -> Path | None:
        return self._inner.local_path(key)

    def _ask(self, verb: str, key: str, work: Callable[[], Answer]) -> Answer:
        # Looked up each time: after a fork they are others.
        calls = calls_on(self.url, partial(self._inner.exists, _NO_KEY))
        try:
            return calls.ask(work, self._limit_s)
        except SilentError as silent:
            _piece_bytes.pop(self.url, None)
            raise StorageError(
                f"could not {verb} a key: the store has not answered for {silent.seconds:.1f} s",
                where=f"{self.url}/{key}",
                stream=self.url,
                todo="check the store and the network; Strandline asks the store again. For a store that is only "
                "slow, give the operator a longer bound",
            ) from None
