"""The words of the project: lines of Markdown that a diff can show."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/support/README.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
LINE_MAX = 120

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
