"""The words of the project are plain: phrases, first words of docstrings, names, lines of Markdown."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "strandline"
SOURCES = sorted(SOURCE.rglob("*.py"))
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/support/README.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
LINE_MAX = 120

# These hide the actor, or are not a word of Spark's users. Written in pieces, so that this file does not find itself.
PHRASES = ["some" + "body", "who" + "ever", "no" + "body", "what there" + " is", "all there" + " is", "as it" + " were"]
PHRASES += ["of" + " late", "let" + " go of", "lets" + " go of", "letting" + " go of", "hear" + " of", "hears" + " of"]
HIDDEN_ACTORS = re.compile(r"(?<![\w.])(" + "|".join(PHRASES).replace(" ", r"\s+") + r")(?![\w(])", re.IGNORECASE)
NOT_VERBS = set(
    [
        "Always",
        "Bars",
        "Blocks",
        "Bytes",
        "Continuous",
        "Errors",
        "Flags",
        "Footprints",
        "Its",
        "Kernels",
        "Lines",
        "Microseconds",
        "Neighbours",
        "Offsets",
        "Options",
        "Paragraphs",
        "Partitions",
        "Places",
        "References",
        "Replicas",
        "Results",
        "Rows",
        "Seconds",
        "Sides",
        "Statements",
        "Tables",
        "Texts",
        "This",
        "Tuples",
        "Types",
        "Values",
        "Windows",
        "Words",
    ]
)
PROPERTIES = {"property", "cached_property", "functools.cached_property"}
CLAUSES = re.compile(r"(The same\b|What\b|Whether\b|Who\b)")

# The peers of one protocol, and the commands, which are named as they are typed.
MODULES_OF_ONE_NAME = {"__init__.py", "definition.py"}
MODULES_NOT_YET: set[str] = set()
CLASSES_NOT_YET: set[str] = set()

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines of a page with their numbers, without blocks of code."""
    is_code = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line


def can_be_broken(line: str) -> bool:
    """Returns whether a line is neither a row of a table nor one link or piece of code."""
    return not line.lstrip().startswith("|") and not re.fullmatch(r"\s*(?:[-*] )?(?:`[^`]+`|\S+)[.,;:]?", line)


@each_page
def test_lines_of_markdown_are_at_most_120_characters(page: Path) -> None:
    long = [number for number, line in prose(page) if len(line) > LINE_MAX and can_be_broken(line)]
    assert long == [], f"{page.name}: these lines are too long"


@each_page
def test_pages_name_who_acts(page: Path) -> None:
    found = [match.group() for match in HIDDEN_ACTORS.finditer("\n".join(line for _, line in prose(page)))]
    assert found == []


def test_sources_name_who_acts() -> None:
    """In docstrings, comments, messages and names."""
    found = {str(s.relative_to(SOURCE)): HIDDEN_ACTORS.findall(s.read_text()) for s in SOURCES}
    assert {source: phrases for source, phrases in found.items() if phrases} == {}


def test_docstrings_say_what_a_function_does() -> None:
    """That of a function begins with a verb; a property and a class may begin with a noun, none with a clause."""
    found = {str(source.relative_to(SOURCE)): without_verbs(source) for source in SOURCES}
    assert {source: names for source, names in found.items() if names} == {}


def without_verbs(source: Path) -> list[str]:
    """Returns the names of functions and classes in a source whose docstrings begin in another way."""
    nodes = list(ast.walk(ast.parse(source.read_text())))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    others = [node for node in nodes if isinstance(node, ast.ClassDef | ast.Module)]
    others += [node for node in functions if is_property(node)]
    wrong = [name_of(node) for node in functions if not is_property(node) and not begins_with_a_verb(node)]
    return wrong + [name_of(node) for node in others if CLAUSES.match(ast.get_docstring(node) or "")]


def test_two_modules_or_classes_never_share_a_name() -> None:
    modules, classes = defaultdict(list), defaultdict(list)
    for source in SOURCES:
        if source.parent.name != "cli":
            modules[source.name].append(source)
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(source)
    twice = {name for name, sources in modules.items() if len(sources) > 1} - MODULES_OF_ONE_NAME
    assert twice <= MODULES_NOT_YET, sorted(twice)
    twice = {name for name, sources in classes.items() if len(sources) > 1}
    assert twice <= CLASSES_NOT_YET, {name: classes[name] for name in twice}


def name_of(node: ast.AST) -> str:
    return getattr(node, "name", "the module")


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {ast.unparse(decorator) for decorator in function.decorator_list}
    return not PROPERTIES.isdisjoint(names) or any(name.endswith(".setter") for name in names)


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Returns whether a docstring is the help of a command, which is an order."""
    arguments = ast.unparse(function.args)
    return "typer." in arguments or "StreamPath" in arguments


def begins_with_a_verb(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Returns whether a docstring, if there is one, begins with a word such as Returns or Publishes."""
    if is_command(function):
        return True
    first = (ast.get_docstring(function) or "Does").split()[0].rstrip(",:;.")
    return re.fullmatch(r"[A-Z][a-z]+s", first) is not None and first not in NOT_VERBS
