"""A step whose object is with another process of this machine is run there; where that cannot be, nobody waits."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from strandline.errors import InputError
from strandline.running.state.live_operators import LIVE
from strandline.spark.operator import holder

HOLDS = """
import sys
from pathlib import Path
from strandline.running.state.live_operators import LIVE, LiveOperator
from strandline.spark.operator import holder
from tests.support.user_operators import Running, definition
folder = Path(sys.argv[1])
LIVE.leave(str(folder), LiveOperator("left", definition(Running()).fresh()))
holder.announce(folder, "left")
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Call:
    """Says who runs it, raises, or takes its process with it."""

    what: str

    def __call__(self) -> int:
        if self.what == "raise":
            raise InputError("no", where="there", todo="something")
        if self.what == "die":
            os._exit(1)
        return os.getpid()


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_a_neighbour_runs_the_step_until_it_dies(neighbour: subprocess.Popen[str], tmp_path: Path) -> None:
    def ask(what: str, attempt: str = "left") -> object:
        return holder.asked(tmp_path, attempt, lambda: pickle.dumps(Call(what)))

    assert ask("run") == neighbour.pid
    assert ask("run", "another") is None
    with pytest.raises(InputError) as caught:
        ask("raise")
    assert (caught.value.what, caught.value.where) == ("no", "there")
    with pytest.raises(holder.HolderLostError):
        ask("die")
    neighbour.wait()
    assert ask("run") is None


def test_nobody_is_asked_who_has_said_nothing_or_has_it_no_more(tmp_path: Path) -> None:
    def never() -> bytes:
        raise AssertionError("nobody is there to be told")

    assert holder.asked(tmp_path, "left", never) is None
    (tmp_path / holder.FILE).write_text("torn{")
    assert holder.asked(tmp_path, "left", never) is None
    holder.announce(tmp_path, "left")
    assert json.loads((tmp_path / holder.FILE).read_text())["attempt"] == "left"
    assert holder.asked(tmp_path, "left", never) is None  # this process itself
    assert not LIVE.holds(str(tmp_path), "left")
    holder._addresses[os.getpid()], kept = "", holder._own_address()
    try:  # as a neighbour sees it: there is a file, and the object is gone
        assert holder.asked(tmp_path, "left", never) is None
    finally:
        holder._addresses[os.getpid()] = kept
