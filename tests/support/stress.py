"""`make stress [RUNS=4] [LOAD=2]`: the tests of real processes several times, every second time on a loaded machine.

Runs the tests marked `spark` or `crash`, of the ordinary and the long tier, without second chances. Beside every second
run, `LOAD` other processes keep the machine busy. The end lists each test that failed in any run, with its first
failure. Such a test, or the code that it tests, is not reliable: the cause has to be found and removed.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from strandline.clock import stopwatch_s

ROOT = Path(__file__).parents[2]
CHOSEN = "spark or crash"
BUSY = "while True: pass"
LINES_SHOWN = 12


@contextmanager
def loaded(processes: int) -> Iterator[None]:
    """Keeps so many processors busy while the block runs."""
    busy = [subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run_tests(report: Path, draw: str, more: Sequence[str]) -> int:
    """Runs the tests once and returns pytest's status; failures are in the report, as JUnit writes them."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--no-loadscope-reorder"]
    command += [
        "--run-long",
        "--no-reruns",
        "--part=1",  # also of a busy machine
        "-m",
        CHOSEN,
        f"--junitxml={report}",
        f"--draw={draw}",
        "-q",
        "--tb=short",
        *more,
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def failures(report: Path) -> dict[str, str]:
    """Returns the tests that failed, by name, with the last lines of their failures."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        for kind in ("failure", "error"):
            problem = case.find(kind)
            if problem is not None:
                text = (problem.text or "").strip().splitlines()
                found[f"{case.get('classname')}::{case.get('name')}"] = "\n".join(text[-LINES_SHOWN:])
    return found


def main() -> None:
    """Runs the command."""
    arguments = argparse.ArgumentParser(prog="make stress", description=__doc__.split("\n")[0])
    arguments.add_argument("--runs", type=int, default=4)
    arguments.add_argument("--load", type=int, default=2, help="busy processes beside every second run")
    arguments.add_argument("--draw", default=secrets.token_hex(4), help="draws the tests of each run; new by default")
    arguments.add_argument("more", nargs="*", help="options and files for pytest")
    given, more = arguments.parse_known_args()
    more = [*given.more, *more]
    failed: dict[str, list[str]] = {}
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.runs):
            load = given.load if number % 2 else 0
            report, began_s = Path(folder) / f"{number}.xml", stopwatch_s()
            print(
                f"=== run {number + 1} of {given.runs}, draw {given.draw} {number}, {load} busy processes", flush=True
            )
            with loaded(load):
                status = run_tests(report, f"{given.draw} {number}", more)
            if not report.exists():
                sys.exit(f"pytest ended with status {status} and wrote no report")
            found = failures(report)
            runs.append({"load": load, "minutes": round((stopwatch_s() - began_s) / 60, 1), "failed": len(found)})
            print(f"=== run {number + 1}: {runs[-1]}", flush=True)
            for test, text in found.items():
                failed.setdefault(test, []).append(text)
    print(json.dumps({"runs": runs, "failed": {test: len(texts) for test, texts in failed.items()}}, indent=2))
    for test, texts in failed.items():
        print(f"\n{test} failed in {len(texts)} of {given.runs} runs, the first time with\n{texts[0]}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
