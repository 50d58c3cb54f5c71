"""A compiled kernel is loaded where everything that went into it is the same, and compiled everywhere else."""

from __future__ import annotations

import ast
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.machine import patience

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "strandline"

PROGRAM = """
import gc, json, sys
from random import Random
import numpy as np
from numba.core.dispatcher import Dispatcher
from strandline.operators.kernels import key_codec
from strandline.operators.aggregate.aggregate_operator import AggregateOperator
from tests.support.operator_streams import PLANS, Tuples, rows_table

results = []
for name in sys.argv[1:]:
    operator = PLANS[name].fresh()
    operator.begin()
    for columns in operator.feed([rows_table(Tuples(Random(1), keys=5).rows(200), 0)]):
        results += [column.to_pylist() for column in columns]
if not sys.argv[1:]:
    words = np.empty(1, np.int64)
    key_codec._hash(np.frombuffer(b"strandline", np.uint8), np.array([0, 10]), words)
    results = words.tolist()
stats = [made.stats for made in gc.get_objects() if isinstance(made, Dispatcher)]
print(json.dumps({
    "results": results,
    "loaded": sum(sum(s.cache_hits.values()) for s in stats),
    "compiled": sum(sum(s.cache_misses.values()) for s in stats),
    "folders": sorted({str(s.cache_path) for s in stats if s.cache_path}),
}, default=str))
"""
STRINGS = "tumbling count, strings"


def process(
    package: Path, environment: Mapping[str, str], *names: str, prefix: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """Another process that runs operators of the package in this folder; without a name, one small kernel of them."""
    path = f"{package}{os.pathsep}{ROOT}"
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", PROGRAM, *names],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(started: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    out, error = started.communicate(timeout=patience(200))
    assert started.returncode == 0, error
    return json.loads(out), error


def run(package: Path, environment: Mapping[str, str], *names: str, prefix: tuple[str, ...] = ()) -> dict[str, Any]:
    return outcome(process(package, environment, *names, prefix=prefix))[0]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with a copy of the package and the kernels that its first process compiled; what that process said."""
    folder = tmp_path_factory.mktemp("warm")
    shutil.copytree(PACKAGE, folder / "copy" / "strandline", ignore=shutil.ignore_patterns("__pycache__"))
    return folder, run(folder / "copy", {"NUMBA_CACHE_DIR": str(folder / "kernels")}, STRINGS)


@pytest.fixture
def elsewhere(warm: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """The same in another folder, to do something with, written at another time."""
    shutil.copytree(warm[0], tmp_path / "elsewhere")
    for path in (tmp_path / "elsewhere").rglob("*.py"):
        os.utime(path, (1e9, 1e9))
    return tmp_path / "elsewhere"


# ---------------------------------------------------------------------- the same sources, other sources


def test_kernels_are_loaded_by_the_next_process_wherever_the_same_sources_lie(
    warm: tuple[Path, dict[str, Any]], elsewhere: Path
) -> None:
    folder, first = warm
    assert first["compiled"] > 0
    for package in (folder / "copy", elsewhere / "copy"):
        later = run(package, {"NUMBA_CACHE_DIR": str(elsewhere / "kernels")}, STRINGS)
        assert (later["compiled"], later["results"]) == (0, first["results"])
        assert later["loaded"] > 0


def test_a_package_in_a_zip_has_the_same_kernels(warm: tuple[Path, dict[str, Any]], elsewhere: Path) -> None:
    """As Spark ships one to its workers."""
    package = shutil.make_archive(str(elsewhere / "package"), "zip", elsewhere / "copy")
    later = run(Path(package), {"NUMBA_CACHE_DIR": str(elsewhere / "kernels")}, STRINGS)
    assert (later["compiled"], later["results"]) == (0, warm[1]["results"])
    assert later["loaded"] > 0


def test_kernels_with_another_constant_of_another_file_are_not_loaded(
    warm: tuple[Path, dict[str, Any]], elsewhere: Path
) -> None:
    # Where the bytes of a key lie is a number that compiled code has frozen in.
    record = elsewhere / "copy" / "strandline" / "operators" / "open_windows" / "record.py"
    text = record.read_text()
    assert "LENGTH_BITS: Final = 24" in text
    record.write_text(text.replace("LENGTH_BITS: Final = 24", "LENGTH_BITS: Final = 20"))
    changed = run(elsewhere / "copy", {"NUMBA_CACHE_DIR": str(elsewhere / "kernels")}, STRINGS)
    assert changed["loaded"] == 0, "a kernel with the old number was loaded"
    assert changed["results"] == warm[1]["results"]


def test_a_damaged_kernel_is_compiled_anew(warm: tuple[Path, dict[str, Any]], elsewhere: Path) -> None:
    files = sorted(path for path in (elsewhere / "kernels").rglob("*") if path.is_file())
    assert files
    for i, path in enumerate(files):
        data = bytearray(path.read_bytes())
        if i % 2:
            data[len(data) // 2] ^= 8
        path.write_bytes(data if i % 2 else data[: len(data) // 3])
    again = run(elsewhere / "copy", {"NUMBA_CACHE_DIR": str(elsewhere / "kernels")}, STRINGS)
    assert again["loaded"] == 0
    assert again["results"] == warm[1]["results"]


@pytest.mark.long
def test_processes_that_compile_at_the_same_time_do_not_mix_up_their_kernels(
    warm: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """The kernels of two plans are one function with other numbers in it."""
    copy, environment = warm[0] / "copy", {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    names = ["tumbling count", STRINGS]
    started = [process(copy, environment, name) for name in names]
    made = [outcome(one)[0]["results"] for one in started]
    later = [run(copy, environment, name) for name in names]
    assert [one["results"] for one in later] == made
    assert [one["compiled"] for one in later] == [0, 0]
    # Both in one process, as a worker of two queries has them: compiled elsewhere, they may have taken the same names.
    both = run(copy, environment, *names)
    assert (both["compiled"], both["results"]) == (0, made[0] + made[1])


def test_kernels_of_sources_that_are_no_longer_used_are_removed(
    warm: tuple[Path, dict[str, Any]], elsewhere: Path
) -> None:
    [kernels] = (elsewhere / "kernels").iterdir()
    [used] = kernels.iterdir()
    for i in range(20):
        (kernels / f"old{i:02d}").mkdir()
        os.utime(kernels / f"old{i:02d}", (1_000 + i, 1_000 + i))
    environment = {"NUMBA_CACHE_DIR": str(elsewhere / "kernels")}
    run(elsewhere / "copy", environment, STRINGS)
    assert len(list(kernels.iterdir())) == 21, "nothing new was made, so nothing has to go"
    shutil.rmtree(used)
    run(elsewhere / "copy", environment)
    left = {path.name for path in kernels.iterdir()}
    assert left == {used.name, *(f"old{i:02d}" for i in range(13, 20))}


def test_what_kernels_freeze_in_comes_from_the_folder_that_is_stamped() -> None:
    """A number from elsewhere would not be part of the stamp: import it in a module without kernels."""
    # Functions and classes, called between kernels.
    allowed = {"strandline.errors", "strandline.arrow_types", "strandline.clock"}
    for path in sorted((PACKAGE / "operators").rglob("*.py")):
        tree = ast.parse(path.read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        if any(node.module == "strandline.operators.kernels.kernel_cache" for node in imports):
            modules = {node.module for node in imports if node.module and node.module.startswith("strandline")}
            foreign = {module for module in modules if not module.startswith("strandline.operators")}
            assert foreign <= allowed, path.name


def test_no_kernel_uses_a_cache_that_knows_one_file_only() -> None:
    for path in sorted((PACKAGE / "operators").rglob("*.py")):
        if path.name == "kernel_cache.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "numba":
                assert "njit" not in {name.name for name in node.names}, f"{path.name}: take kernel_cache.njit"


# ---------------------------------------------------------------------- where nothing can be written


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder that other users can look into, with a copy of the package that they cannot write to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        copy = Path(folder, "copy")
        shutil.copytree(PACKAGE, copy / "strandline", ignore=shutil.ignore_patterns("__pycache__"))
        folders = [copy, *(path for path in copy.rglob("*") if path.is_dir())]
        for path in folders:
            path.chmod(0o555)
        (Path(folder) / "temporary").mkdir()
        (Path(folder) / "temporary").chmod(0o1777)
        yield Path(folder)
        for path in folders:
            path.chmod(0o755)


@pytest.fixture
def somebody(place: Path) -> tuple[str, ...]:
    """What to put before a command, so that it can write to neither the package nor a home."""
    if os.geteuid() != 0:
        return ()
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    command = [*prefix, sys.executable, "-c", "import numba"]
    try:
        subprocess.run(command, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"root can write everywhere, and cannot be somebody else here: {error}")
    return prefix


def test_without_a_folder_of_ones_own_kernels_lie_in_a_private_one(place: Path, somebody: tuple[str, ...]) -> None:
    copy, temporary = place / "copy", place / "temporary"
    environment = {"HOME": "/nonexistent", "TMPDIR": str(temporary)}
    first = run(copy, environment, prefix=somebody)
    assert first["compiled"] > 0
    [folder] = first["folders"]
    private = temporary / Path(folder).relative_to(temporary).parts[0]
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    second = run(copy, environment, prefix=somebody)
    assert (second["compiled"], second["results"]) == (0, first["results"])


def test_kernels_compiled_where_the_package_was_installed_are_loaded_by_every_user(
    place: Path, somebody: tuple[str, ...]
) -> None:
    """As an image is made by root, and run by somebody."""
    if not somebody:
        pytest.skip("needs two users, and only root can be both")
    copy, environment = place / "copy", {"HOME": "/nonexistent", "TMPDIR": str(place / "temporary")}
    first = run(copy, environment)
    assert first["compiled"] > 0
    [folder] = first["folders"]
    assert Path(folder).is_relative_to(copy)
    later = run(copy, environment, prefix=somebody)
    assert (later["compiled"], later["results"]) == (0, first["results"])
    Path(folder).chmod(0o777)  # now others can put kernels there: they are not believed
    (place / "empty").mkdir()
    (place / "empty").chmod(0o1777)
    assert run(copy, {**environment, "TMPDIR": str(place / "empty")}, prefix=somebody)["compiled"] > 0


def test_where_nothing_at_all_is_writable_kernels_are_compiled_and_it_is_said_once(
    place: Path, somebody: tuple[str, ...]
) -> None:
    copy = place / "copy"
    (place / "sealed").mkdir(mode=0o555)
    # Python itself looks for a folder for temporary files in more places than one.
    blocked = place / "blocked" / "sitecustomize.py"
    blocked.parent.mkdir()
    blocked.write_text(f"import tempfile\ntempfile.tempdir = {str(place / 'sealed')!r}\n")
    environment = {"HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join([str(blocked.parent), str(copy), str(ROOT)])}
    made, said = outcome(process(copy, environment, prefix=somebody))
    assert made["results"]
    assert made["folders"] == []
    assert said.count("Warning") == 1
    assert "NUMBA_CACHE_DIR" in said


def test_a_private_folder_that_belongs_to_somebody_else_is_not_used(place: Path, somebody: tuple[str, ...]) -> None:
    """Kernels are loaded as they lie there: whoever can write them can run code."""
    if not somebody:
        pytest.skip("needs two users, and only root can be both")
    copy, temporary = place / "copy", place / "temporary"
    environment = {"HOME": "/nonexistent", "TMPDIR": str(temporary)}
    run(copy, environment, prefix=somebody)
    [private] = temporary.iterdir()
    for path in [private, *private.rglob("*")]:
        os.chown(path, 12345, 12345)
        path.chmod(0o777)
    made, said = outcome(process(copy, environment, prefix=somebody))
    assert made["loaded"] == 0
    assert "belongs to" in said
