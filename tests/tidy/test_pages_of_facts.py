"""Pages that list facts of the code list all of them: the glossary its enums, internals what we do to the process."""

import ast
import re
from pathlib import Path
from typing import TypeGuard, get_args

import pytest
from typer.main import get_command

from strandline import errors
from strandline.cli.app import app
from strandline.cli.bench import WORKLOADS
from strandline.log.operator_state.outage import State
from strandline.log.stream import reason
from strandline.log.stream.commit_kinds import KINDS
from strandline.log.stream.kinds import Kind
from strandline.operators.barrier import barrier_columns
from strandline.operators.join import join_aside
from strandline.operators.keyed import keyed_operator
from strandline.operators.partition_wide import partition_operator
from strandline.spark.query.error_in_text import failure_in

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "strandline"
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
INTERNALS = (ROOT / "docs" / "internals.md").read_text()
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()
COMMANDS = list(get_command(app).commands)  # type: ignore[attr-defined]
REASONS = [value for name, value in vars(reason).items() if name.isupper() and name != "IN_NAME"]
REASONS += [barrier_columns.REASON, join_aside.WHERE]
REASONS += [keyed_operator.FUNCTION_RAISED, partition_operator.PROCESS_RAISED]

# What reaches beyond our own objects: into the process, the interpreter, PySpark, Spark's session or its JVM.
EFFECTS = re.compile(
    r"copyreg\.pickle|gc\.\w+|sys\.excepthook|threading\.excepthook|_register_atexit|atexit\.register|register_at_fork"
    r"|signal\.signal|convert_exception|\bexec\(\"|environ\.setdefault|environ\[\"\w+\"\](?= =)|logging\.disable"
    r"|sys\.path\.insert|globals\(\)\.update|setLogLevel|addArchive|register_pickle_by_value|Popen(?= =)|UnsafeRow"
    r"|MemoryStream\.apply|postListenerEvent|longMetric|setJobGroup|setLocalProperty|cancelJobGroupAndFutureJobs|makeRDD"
    r"|dataSource\.register|conf\.set\b|mmap\.mmap|ThreadPoolExecutor|\bListener\b|\bbroadcast\b(?=\()|simplefilter"
    r"|setrecursionlimit|setswitchinterval|set_start_method|addPyFile|addJar|set_memory_pool|umask"
)


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_the_glossary_has_each_kind_of_tuple(kind: Kind) -> None:
    assert f"`{kind.name.lower()}`" in row("kind")


@pytest.mark.parametrize("why", REASONS)
def test_the_glossary_has_each_reason_of_the_side_log(why: str) -> None:
    assert f"`{why}`" in row("set aside, reason")


@pytest.mark.parametrize("kind", KINDS)
def test_the_glossary_has_each_kind_of_commit(kind: str) -> None:
    assert f"`{kind}`" in row("kinds of commit")


@pytest.mark.parametrize("state", get_args(State))
def test_the_glossary_has_each_state_of_an_operator_with_a_bound(state: str) -> None:
    assert f"`{state}`" in GLOSSARY


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_page_of_benchmarks_has_the_command_and_the_fields_of_each(name: str) -> None:
    assert re.search(rf"^strandline bench {name} ", BENCHMARKS, re.MULTILINE)
    assert re.search(rf"^## (.*, )?{name}\b", BENCHMARKS, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_has_each_command_and_its_options(command: str) -> None:
    assert re.search(rf"^\\| `strandline {command}[` ]|`strandline {command} ", REFERENCE, re.MULTILINE)
    assert re.search(rf"^\\| `{command}[` ]", REFERENCE, re.MULTILINE)


def row(word: str) -> str:
    """Returns the row of a word in the tables of the glossary."""
    (found,) = re.findall(rf"^\| {re.escape(word)} \|.*$", GLOSSARY, re.MULTILINE)
    return str(found)


def test_internals_has_what_we_do_to_the_process_and_to_spark() -> None:
    """Write the call, the file and the reason into docs/internals.md, or do without the call."""
    found = {str(source.relative_to(SOURCE)): unnamed_effects(source) for source in SOURCE.rglob("*.py")}
    assert {source: effects for source, effects in found.items() if effects} == {}


def unnamed_effects(source: Path) -> list[str]:
    text = re.sub(r"^\s*#.*$", "", source.read_text(), flags=re.MULTILINE)
    return [effect for effect in sorted(set(EFFECTS.findall(text))) if effect.rstrip('("') not in INTERNALS]


def test_files_that_internals_names_exist() -> None:
    named = re.findall(r"`([a-z_/]+\.py|[a-z]+(?:/[a-z]+)*/)`", INTERNALS)
    assert [name for name in named if name != "src/strandline/" and not (SOURCE / name).exists()] == []


def test_architecture_has_a_line_on_every_package() -> None:
    packages = {str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("__init__.py")} - {"."}
    assert set(re.findall(r"^\| `([a-z_/]+)` \|", ARCHITECTURE, re.MULTILINE)) - {"api"} == packages


def test_the_walk_of_a_tuple_names_files_and_functions_that_exist() -> None:
    named = re.findall(r"^ *\d* +[a-z]+ +([a-z_/]+\.py) +([\w.]+)", walk(), re.MULTILINE)
    assert len(named) > 60, "the columns of the diagram are others"
    assert [(file, name) for file, name in named if name not in functions(SOURCE / file)] == []


def test_the_walk_of_a_tuple_counts_its_hops_and_files() -> None:
    hops = [int(number) for number in re.findall(r"^ *(\d+) +[a-z]+ ", walk(), re.MULTILINE)]
    files = set(re.findall(r"^ *\d* +[a-z]+ +([a-z_/]+\.py) ", walk(), re.MULTILINE))
    assert hops == list(range(1, len(hops) + 1))
    assert f"{len(hops)} hops through {len(files)} files" in walk()


def walk() -> str:
    """Returns that section of the page on architecture."""
    (found,) = re.findall(r"^## The walk of a tuple$.*?(?=^## )", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    return str(found)


def functions(source: Path) -> set[str]:
    """Returns the names of the functions in a file, those of methods with their class."""
    if not source.exists():
        return set()
    nodes = list(ast.walk(ast.parse(source.read_text())))
    methods = {f"{c.name}.{f.name}" for c in nodes if isinstance(c, ast.ClassDef) for f in c.body if is_function(f)}
    return methods | {node.name for node in nodes if is_function(node)}


def is_function(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef)


def test_internals_has_every_thread_that_we_start() -> None:
    names = {name for path in SOURCE.rglob("*.py") if "Thread" in path.read_text() for name in thread_names(path)}
    assert names, "no thread has a name of ours"
    assert [name for name in sorted(names) if f"`{name}`" not in INTERNALS] == []


def thread_names(source: Path) -> list[str]:
    return re.findall(r"[\"(](strandline-[a-z]+)\"", source.read_text())


def test_the_reference_has_the_errors_after_which_an_element_starts_again() -> None:
    table = REFERENCE[REFERENCE.index("### `restart`") :].split("\n\n")[2]
    passing, *_, others = table.splitlines()[2:]
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.StrandlineError) and "may_pass" in vars(kind):
            assert (f"`{name}`" in passing) is kind.may_pass, name
            assert (f"`{name}`" in others) is (name != "StrandlineError" and not kind.may_pass), name


def test_operating_quotes_the_error_of_a_python_process_that_does_not_start() -> None:
    found = failure_in("Python worker failed to connect back.", "")
    assert found is not None
    assert f"`{type(found).__name__}: {found.what}`" in (ROOT / "docs" / "operating.md").read_text()
