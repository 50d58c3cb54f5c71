"""What an installation brings along, and what importing it costs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.cli import shipped
from strandline.cli.app import app

ROOT = Path(__file__).parents[2]


def test_the_wheel_installs_one_package_with_the_benchmarks_and_the_demo_inside_of_it(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"strandline"}
    packed = {name.removeprefix("strandline/_shipped/") for name in names if name.startswith("strandline/_shipped/")}
    folders = [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples/demo").glob("*.py")]
    assert packed == {str(file.relative_to(ROOT)) for file in folders} | {"examples/__init__.py"}


def test_an_installed_workload_is_found_by_everybody_who_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "open.py").write_text(
        "import subprocess, sys\nSIZES = {'small': 1}\ndef run(size, repeat):\n"
        "    program = [sys.executable, '-c', 'import benchmarks.open as found; print(found.__file__)']\n"
        "    return {'file': subprocess.run(program, check=True, capture_output=True, text=True).stdout.strip()}\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.setattr(shipped, "INSTALLED", tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    result = CliRunner().invoke(app, ["bench", "open", "--json"])
    monkeypatch.delitem(sys.modules, "benchmarks")
    monkeypatch.delitem(sys.modules, "benchmarks.open")
    assert result.exit_code == 0, result.output
    assert str(folder / "open.py") in result.stdout


def test_importing_strandline_imports_neither_pandas_nor_pyspark() -> None:
    program = "import strandline, sys; print(sorted({'pandas', 'pyspark', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
