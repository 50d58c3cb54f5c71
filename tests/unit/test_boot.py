"""A reboot is noticed, however the system tells of it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.running.state import boot as module
from strandline.running.state.boot import boot, is_of_this_boot


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Every test asks anew."""
    boot.cache_clear()
    yield
    boot.cache_clear()


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_PROC", tmp_path / "nothing")


def test_linux_names_its_boots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_PROC", tmp_path / "boot_id")
    (tmp_path / "boot_id").write_text("first\n")
    assert boot() == "first"
    assert is_of_this_boot("first")
    (tmp_path / "boot_id").write_text("second\n")
    boot.cache_clear()
    assert not is_of_this_boot("first")


def test_macos_names_its_boots(monkeypatch: pytest.MonkeyPatch, no_proc: None) -> None:
    class System:
        def sysctlbyname(self, name: bytes, text: Any, size: object, *_: object) -> int:
            text.value = b"4E3B7D2A"
            return 0 if name == b"kern.bootsessionuuid" else 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: System())
    assert boot() == "4E3B7D2A"


class Machine:
    """A machine that can only tell the time, and since when it runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.began_s = 1_000_000.0, 900_000.0
        monkeypatch.setattr(module, "_by_sysctl", lambda: "")
        monkeypatch.setattr(module, "uptime_s", lambda: self.now_s - self.began_s)
        monkeypatch.setattr(module, "SYSTEM_CLOCK", self)
        self.wrong_s = 0.0

    def now_us(self) -> int:
        return int((self.now_s + self.wrong_s) * 1e6)


def test_other_systems_know_when_they_began(monkeypatch: pytest.MonkeyPatch, no_proc: None) -> None:
    machine = Machine(monkeypatch)
    first = boot()
    machine.now_s += 7 * 86_400
    machine.wrong_s = 3.0  # clocks are set now and then
    boot.cache_clear()
    assert is_of_this_boot(first)
    machine.began_s = machine.now_s
    machine.now_s += 30
    boot.cache_clear()
    assert not is_of_this_boot(first)
    assert is_of_this_boot(boot())


@pytest.mark.parametrize("written", ["", "about ", "about noon", "another"])
def test_what_nobody_understands_is_of_another_boot(
    monkeypatch: pytest.MonkeyPatch, no_proc: None, written: str
) -> None:
    Machine(monkeypatch)
    assert not is_of_this_boot(written)


def test_this_machine_says_the_same_twice() -> None:
    first = boot()
    boot.cache_clear()
    assert first
    assert is_of_this_boot(first)
