"""Makes the golden stream with dropped commits: `python -m tests.golden.make_dropped` writes `tests/golden/dropped`.

What is there is never written again, as with the others (`make`).
"""

import json
import sys
from pathlib import Path

from strandline.clock import ManualClock
from strandline.log.stream.log import Log
from strandline.log.upkeep.dropping import drop_commits
from tests.golden import make

FOLDER = Path(__file__).with_name("dropped")
EXPECTED = Path(__file__).with_name("expected_dropped.json")


def make_dropped() -> Log:
    """The golden stream, grown on: two milestones, commits of three kinds after the newest, most others dropped."""
    log = make.make()
    assert isinstance(log.clock, ManualClock)
    names = iter("ab")
    for batch in (6, 8):
        make.append(log, batch, {0: [make.row(10 + batch, 30 + batch)], 1: [make.row(11 + batch, 30 + batch)]})
        log.fold()
        drop_commits(log, keep_commits=3, keep_us=0, every=1, unique=lambda: next(names))
        make.append(log, batch + 1, {1: [make.row(12 + batch, 31 + batch)]})
    return log


if __name__ == "__main__":
    if FOLDER.exists():
        sys.exit(f"{FOLDER} is frozen; a change of the format needs a new version")
    made = make_dropped()
    for listed in made.storage.list(""):
        (FOLDER / listed.key).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / listed.key).write_bytes(made.storage.read(listed.key))
    EXPECTED.write_text(json.dumps(make.content(made), indent=1, ensure_ascii=False) + "\n")
    print(f"made {FOLDER}: {made.state.seq + 1} commits, kept from {made.kept} on")
