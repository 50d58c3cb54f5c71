"""The commits of a stream as they lie on its storage: those that are kept, and nothing that stands in their place.

Once commits can be dropped, a number that is missing may be one that is not taken yet or one that is free again; and
a process that was frozen for long may create a commit at such a dead number, which is then no part of history. Both are
told apart by one question, asked *after* the numbers were looked at: is a milestone marked that we do not know of?
Nothing is dropped before a milestone is marked that says so. So if there is none, what was read is what was published,
what is missing was never there, and what was created is the end of the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from strandline.errors import CorruptManifestError, DroppedError, KeyMissingError, StrandlineError, concerning
from strandline.log.index import cuts, index
from strandline.log.index.cuts import CutFile
from strandline.log.index.index import Index, Snapshot
from strandline.log.storage.storage import Storage
from strandline.log.stream import commit_kinds, manifest
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.commit import Commit
from strandline.log.stream.log_state import LogState
from strandline.log.stream.manifest import FORMAT_2, commit_key
from strandline.log.stream.milestone import FOLDER, Milestone, mark_key
from strandline.log.stream.spec import StreamSpec

PROBES = tuple(1 << power for power in range(11))
"""How far behind a missing commit a later one is looked for. A listing would show it, too, but a stream of small
batches keeps hundreds of thousands of commits. So a hole of n commits is found if n commits or more follow it."""
LOCAL_PROBES = (*range(1, 65), *(step for step in PROBES if step > 64))
"""The same on a file system, where a question costs microseconds: a hole of up to 64 is found if one commit follows."""
POLLS = 64
"""After so many polls without news it is asked whether the commit that is waited for is lost."""


class Commits:
    """The commits of one stream."""

    def __init__(self, storage: Storage, stream: str) -> None:
        self._storage = storage
        self._stream = stream
        self.newest: Milestone | None = None
        """The newest milestone that is known here."""
        self._polls = 0
        self._probes = PROBES if storage.local_path(commit_key(0)) is None else LOCAL_PROBES

    @property
    def kept(self) -> int:
        """The first commit that is kept, as far as is known here."""
        return 0 if self.newest is None else self.newest.kept

    def note(self, milestone: Milestone | None) -> None:
        """Takes in a milestone that is part of the history, whether it is marked or not."""
        if milestone is not None and (self.newest is None or milestone.number > self.newest.number):
            self.newest = milestone

    def look(self) -> None:
        """Finds the newest milestone that is marked: one question if it is known already."""
        low = -1 if self.newest is None else self.newest.number
        step = 1
        while self._storage.exists(mark_key(low + step)):
            low, step = low + step, step * 2
        if step == 1:
            return
        high = low + step  # the numbers have no gaps
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if self._storage.exists(mark_key(middle)) else (low, middle)
        self.note(self._mark(low))

    def dropped_for(self) -> Milestone | None:
        """Returns the milestone for which commits were dropped, even if its mark is lost; None if none was dropped.

        The file of the first commit says it since the first of them was dropped.
        """
        with contextlib.suppress(KeyMissingError, CorruptManifestError, TypeError):
            return self._read_mark(commit_key(0))
        return None

    def _mark(self, number: int) -> Milestone:
        # What a mark says is acted upon, so it must not be taken back by a power loss.
        self._storage.settle(FOLDER)
        return self._read_mark(mark_key(number))

    def _read_mark(self, key: str) -> Milestone:
        with concerning(self._storage.url):
            return read_mark(self._storage.read(key), self._stream, f"{self._storage.url}/{key}")

    # ------------------------------------------------------------------ reading commits

    def from_(self, seq: int, many: int) -> list[Commit]:
        """Returns up to `many` commits from `seq` on; raises `DroppedError` if the commit `seq` is dropped."""
        found: list[Commit] = []
        try:
            with contextlib.suppress(KeyMissingError):
                while len(found) < many:
                    found.append(self._read(seq + len(found)))
        except StrandlineError:
            self.require_kept(seq)
            raise
        self.require_kept(seq)
        self._polls = 0 if found else self._polls + 1
        if self._polls == POLLS:
            self._polls = 0
            self.has_later(seq)
        return found

    def some(self, seqs: Sequence[int]) -> list[Commit]:
        """Returns these commits; raises `DroppedError` if they were dropped."""
        try:
            found = [self._read(seq) for seq in seqs]
        except StrandlineError:
            self.require_kept(min(seqs))
            raise
        if found:
            self.require_kept(min(seqs))
        return found

    def require_kept(self, seq: int) -> None:
        """Raises unless the commit, read or created before this call, is part of the history."""
        self.look()
        if seq < self.kept:
            raise DroppedError(
                f"commit {seq} was dropped; the stream keeps the commits from {self.kept} on",
                stream=self._storage.url,
                todo="start this process again: it goes on from the newest commit (it stood still for too long)",
            )

    def has_later(self, seq: int, *, is_near: bool = False) -> bool:
        """Returns whether there are commits after `seq`; raises `CorruptManifestError` if there are and `seq` is lost.

        A commit is created after the one before it, so a later one that is there proves that `seq` was. If `is_near`,
        only the next one is asked for: enough for one lost file, and cheap enough for every publication.
        """
        probes = (1,) if is_near else self._probes
        later = next((seq + step for step in probes if self._storage.exists(commit_key(seq + step))), None)
        if later is None:
            return False
        if not self._storage.exists(commit_key(seq)):
            self.look()
            if seq >= self.kept:
                raise CorruptManifestError(
                    f"commit {seq} is missing, and commit {later} is there: the stream has lost what {seq} published",
                    where=f"{self._storage.url}/{commit_key(seq)}",
                    stream=self._storage.url,
                    todo="restore the file from a copy; `strandline verify` lists what else is missing",
                )
        return True

    def _read(self, seq: int) -> Commit:
        key = commit_key(seq)
        with concerning(self._storage.url):
            return commit_kinds.decode(self._storage.read(key), f"{self._storage.url}/{key}")

    # ------------------------------------------------------------------ reading the milestone

    def snapshot(self) -> Snapshot | None:
        """Returns the state and index of the newest milestone; None if there is none."""
        body = self._body()
        return None if body is None else Snapshot.from_json(body)

    def rebuilt(self, spec: StreamSpec, tree: Index, seq: int) -> Snapshot:
        """Returns the snapshot from the newest milestone and the commits after it up to `seq`, in a new index."""
        while True:
            snapshot = self.snapshot() or Snapshot(spec.id, LogState.empty(spec.partitions))
            try:
                for start in range(snapshot.state.seq + 1, seq + 1, index.FOLD_EVERY):
                    snapshot = tree.fold(snapshot, self.some(range(start, min(start + index.FOLD_EVERY, seq + 1))))
                return snapshot
            except DroppedError:
                continue  # there is a newer milestone

    def cut_files(self) -> list[CutFile]:
        """Returns the cuts of the commits that are dropped, in order."""
        body = self._body()
        return [] if body is None else [CutFile.from_json(file) for file in body["cuts"]]

    def cuts(self, seq: int) -> Iterator[AppendCommit]:
        """Yields some of the appends after `seq` that were dropped."""
        for file in self.cut_files():
            if file.last > seq:
                yield from (m for m in cuts.read(self._storage, file, self._stream) if m.seq > seq)

    def marked_files(self) -> set[str]:
        """Returns every file that the newest milestone with a mark consists of, if they are there, but for its mark."""
        self.look()
        with contextlib.suppress(KeyMissingError):  # an early version may have collected them
            return self.files(self.marked(self.newest))
        return set()

    def marked(self, newest: Milestone | None) -> Milestone | None:
        """Returns the newest milestone that has a mark: this one, or the one before; None if there is none."""
        number = -1 if newest is None else newest.number
        if number >= 0 and not self._storage.exists(mark_key(number)):
            number -= 1
        return self._mark(number) if number >= 0 else None

    def files(self, milestone: Milestone | None) -> set[str]:
        """Returns every file that this milestone consists of, but for its mark."""
        if milestone is None:
            return set()
        body = read_body(self._storage, milestone)
        of_index = Index(self._storage).files(Snapshot.from_json(body).children)
        return {milestone.file, *of_index, *(file["file"] for file in body["cuts"])}

    def _body(self) -> dict[str, Any] | None:
        self.note(self.dropped_for())
        self.look()
        while (milestone := self.newest) is not None:
            try:
                return read_body(self._storage, milestone)
            except (KeyMissingError, CorruptManifestError):
                self.look()  # its file may be collected when there is a newer one
                if milestone == self.newest:
                    raise
        return None


def write_mark(milestone: Milestone, stream: str) -> bytes:
    """Returns the bytes of a mark; they depend on nothing but the milestone."""
    return manifest.seal({"format": FORMAT_2, "stream": stream, **milestone.to_json()})


def read_mark(data: bytes, stream: str, where: str) -> Milestone:
    """Returns the milestone that a mark is of."""
    body = manifest.unseal(data, where)
    if body.get("stream") != stream:
        raise CorruptManifestError(
            f"this file marks a milestone of another stream, {body.get('stream')}",
            where=where,
            todo="two streams were mixed in one folder; restore it from a copy",
        )
    return Milestone.from_json(body)


def read_body(storage: Storage, milestone: Milestone) -> dict[str, Any]:
    """Returns the contents of a milestone's file: a snapshot, and the files of the cuts."""
    what = f"the file of milestone {milestone.number}"
    todo = "restore the file from a copy; the commits that it stands for are dropped"
    data = manifest.read_checked(storage, milestone.file, milestone.checksum, what, todo)
    with concerning(storage.url):
        return manifest.unseal(data, f"{storage.url}/{milestone.file}")
