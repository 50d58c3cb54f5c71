"""Draws seeds and crashes from the hash of the commit: every commit tries others, one commit always tries the same."""

from __future__ import annotations

import hashlib
import subprocess
from functools import lru_cache
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
WITHOUT_GIT = "no commit"


@lru_cache(maxsize=1)
def commit() -> str:
    """Returns the hash of the commit that is checked out, or a fixed text where there is no repository."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError:  # no git
        return WITHOUT_GIT
    return done.stdout.strip() or WITHOUT_GIT


def generator(text: str, purpose: str) -> Random:
    """Returns the generator that a text, such as the hash of a commit, gives for a purpose."""
    return Random(first_seed(text, purpose))


def first_seed(text: str, purpose: str) -> int:
    """Returns the first of the seeds that a text gives for a purpose."""
    return int.from_bytes(hashlib.sha256(f"{text}\0{purpose}".encode()).digest()[:4])
