"""The repository checks itself: what a reviewer would otherwise have to look for by hand, in every change."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import strandline

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LINES_MAX = 400
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}
# Written in two pieces, so that this file does not find itself.
FOREIGN_TEXTS = ["pypi" + ".org", "python" + "hosted.org", "index" + "-url", "/wo" + "rk/", "/ro" + "ot/"]

each_source = pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))


def repository_files() -> list[Path]:
    """Every file that is tracked, or would be after `git add`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not in a git checkout")
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def readme_programs() -> list[str]:
    """The Python blocks of the README that claim to run as they are."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    return [block for block in blocks if block.startswith("import strandline") or "# runs" in block]


def test_imports_point_downwards_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True, no_logo=True) == 0, "see the captured output, or run `make layers`"


@each_source
def test_a_source_file_holds_one_idea(source: Path) -> None:
    lines = len(source.read_text().splitlines())
    assert lines <= LINES_MAX, f"{lines} lines: does it hold two ideas?"


@each_source
def test_a_module_is_named_by_what_it_holds(source: Path) -> None:
    assert not VAGUE_NAMES & set(source.relative_to(ROOT).with_suffix("").parts)


@each_source
def test_a_module_says_on_its_first_line_what_it_gives(source: Path) -> None:
    module = ast.parse(source.read_text())
    assert ast.get_docstring(module), "begins without a docstring"
    assert module.body[0].lineno == 1


def test_exported_names_exist_and_are_documented() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text()
    documented = set(
        re.findall(r"[A-Za-z_]\w*", " ".join(re.findall(r"`[^`\n]+`|^#+ .*$|^```\n[^`]+", reference, re.MULTILINE)))
    )
    assert strandline.__all__, "nothing is exported"
    assert [name for name in strandline.__all__ if not hasattr(strandline, name)] == []
    assert {*strandline.__all__, "testing"} <= {*dir(strandline)}
    assert not hasattr(strandline, "__main__"), "who looks at all names would run the program"
    parts = {path.stem for path in (ROOT / "src" / "strandline").iterdir()}
    assert parts.isdisjoint(strandline.__all__), "one would hide the other"
    assert [name for name in strandline.__all__ if name not in documented] == []


def test_a_process_that_reads_a_stream_loads_no_operator_and_no_compiler() -> None:
    asked = "import sys, strandline.spark.read.source; from strandline import errors; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True).stdout.split()
    assert "strandline.log.stream.log" in loaded
    assert [name for name in loaded if name == "numba" or name.startswith("strandline.operators")] == []


def test_no_file_knows_a_package_index_or_somebodys_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in repository_files()
        for text in FOREIGN_TEXTS
        if text.encode() in path.read_bytes()
    ]
    assert found == []


def test_the_lock_names_versions_and_nothing_else() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line)] == []
    assert "pyspark" in {line.partition("==")[0] for line in lines}


def test_programs_in_the_readme_compile() -> None:
    programs = readme_programs()
    assert programs, "the README shows no program that runs as it is"
    for program in programs:
        compile(program, "README.md", "exec")
