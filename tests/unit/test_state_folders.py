"""States lie in folders of our own, and those of streams that are gone do not stay for ever."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import uuid
from pathlib import Path

import pytest

from strandline.errors import CorruptManifestError, UnsafeFolderError
from strandline.running.state import state_folders
from strandline.running.state.state_folders import FOLDER_VARIABLE, default_folder, fork_folder

STREAM = str(uuid.UUID(int=1))
OTHER = str(uuid.UUID(int=2))


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder for temporary files that everybody shares."""
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that the user has named."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "given"))
    return tmp_path / "given"


def test_the_folder_is_one_of_the_machine_unless_the_environment_says_otherwise(
    shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usual = default_folder(STREAM, 3)
    assert usual.relative_to(shared).parts == (f"strandline-{os.geteuid()}", "state", STREAM, "p00003")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "given"))
    assert default_folder(STREAM, 3) == tmp_path / "given" / STREAM / "p00003"


def test_everything_below_a_shared_folder_is_closed_to_others(shared: Path, given: Path) -> None:
    folder = default_folder(STREAM, 3)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)} == {0o700}


def test_a_name_that_somebody_else_took_first_is_refused(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (shared / f"strandline-{os.geteuid()}").symlink_to(tmp_path / "theirs")
    with pytest.raises(UnsafeFolderError, match="link"):
        default_folder(STREAM, 3)


def test_a_stream_that_somebody_else_keeps_in_the_same_folder_is_refused(
    given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default_folder(STREAM, 3)
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(UnsafeFolderError, match="belongs to user"):
        default_folder(STREAM, 3)


def test_where_nothing_can_be_kept_the_folder_is_one_that_cannot_be(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", f"{os.devnull}/nowhere")
    with pytest.raises(OSError, match="directory"):
        default_folder(STREAM, 3).mkdir()


@pytest.mark.parametrize("stream", ["../elsewhere", "elsewhere/..", "..", ".", "", f"{STREAM}/..", "\0"])
def test_no_id_of_a_stream_leads_out_of_the_folder(given: Path, tmp_path: Path, stream: str) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    given.mkdir(mode=0o755)
    (given / STREAM).mkdir(mode=0o755)
    for folder in (default_folder, fork_folder):
        with pytest.raises(CorruptManifestError, match="the id of a stream"):
            folder(stream, 3)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (given, given.parent / "elsewhere")} == {0o755}
    assert [path.name for path in given.iterdir()] == [STREAM]
    assert not list((given / STREAM).iterdir())


# ---------------------------------------------------------------------- streams that are gone


def left(root: Path, stream: str, partition: int = 0, days: float = 30) -> Path:
    """The state of a partition that was last touched so many days ago."""
    folder = root / stream / f"p{partition:05d}"
    folder.mkdir(parents=True)
    then_s = state_folders.SYSTEM_CLOCK.now_us() / 1e6 - days * 86_400
    for path in (folder / "base", folder / "a1.delta", folder / "a2.whole", folder / "a3.tmp", folder):
        if path != folder:
            path.write_bytes(b"state")
            path.chmod(0o600)
        os.utime(path, (then_s, then_s))
    return folder


def test_states_that_nobody_touched_for_a_week_go_when_a_new_one_comes(given: Path) -> None:
    gone, recent, quiet = left(given, OTHER, 0), left(given, OTHER, 1, days=6), left(given, str(uuid.UUID(int=3)))
    new = default_folder(STREAM, 3)
    assert (gone.exists(), recent.exists(), quiet.exists(), new.exists()) == (False, True, False, True)
    assert not quiet.parent.exists()
    later = left(given, str(uuid.UUID(int=4)))
    default_folder(STREAM, 3)
    assert later.exists(), "nothing new came"
    default_folder(STREAM, 4)
    assert not later.exists()


def test_a_state_that_somebody_holds_stays(given: Path) -> None:
    gone = left(given, OTHER)
    with (gone / "base").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        default_folder(STREAM, 3)
        assert (gone / "base").exists()
    default_folder(STREAM, 4)
    assert not gone.exists()


def test_what_is_not_a_state_is_left_alone(given: Path, tmp_path: Path) -> None:
    elsewhere = left(tmp_path / "elsewhere", OTHER)
    (given / OTHER).parent.mkdir()
    (given / OTHER).symlink_to(elsewhere.parent)
    project = left(given, "my-project")
    mixed = left(given, str(uuid.UUID(int=3)))
    (mixed / "thesis.txt").write_text("five years of work")
    os.utime(mixed, (1, 1))
    default_folder(STREAM, 3)
    assert len(list(elsewhere.iterdir())) == len(list(project.iterdir())) == 4
    assert [path.name for path in mixed.iterdir()] == ["thesis.txt"]
