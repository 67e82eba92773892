"""Each promise of docs/promises.md keeps a test that `make test` runs, and the smoke tests are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from costs import COSTLY
from smoke_tests import SMOKE, SMOKED_PROGRAMMES

ROOT = Path(__file__).parent.parent.parent
PROMISES = ROOT / "docs" / "promises.md"


def promises() -> list[tuple[str, str]]:
    """The promise and what stands in the column of tests, for each row of a table."""
    rows = [line.strip("| \n").split(" | ") for line in PROMISES.read_text().splitlines() if line.startswith("| ")]
    return [(row[0], row[2]) for row in rows if len(row) == 3 and row[0] != "promise"]


def marks_of(nodes: list[ast.expr]) -> set[str]:
    return {name for node in nodes for name in re.findall(r"mark\.(\w+)", ast.unparse(node))}


def is_test(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return node.name.startswith("Test")
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")


@cache
def marks_by_test(path: Path) -> dict[str, set[str]]:
    """The markers of each test of the file; of a state machine by the name of its class."""
    module = ast.parse(path.read_text())
    named = [(ast.unparse(node.targets[0]), node.value) for node in module.body if isinstance(node, ast.Assign)]
    of_all = marks_of([value for name, value in named if name == "pytestmark"])
    found = {name: of_all for name, _ in named if name.startswith("Test")}
    for node in module.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and is_test(node):
            found[node.name] = of_all | marks_of(node.decorator_list)
    return found


@cache
def quick_tests(path: Path) -> int:
    """How many tests of the file `make test` runs."""
    place = path.relative_to(ROOT / "tests").as_posix()
    smoked = {name.partition("::")[2].partition("[")[0] for name in SMOKE if name.partition("::")[0] == place}
    return sum(not marks & set(COSTLY) or bool({"", name} & smoked) for name, marks in marks_by_test(path).items())


def files_of(word: str) -> Iterator[Path]:
    path = ROOT / word
    return path.rglob("test_*.py") if path.is_dir() else iter([path])


def named_files(tests: str) -> list[Path]:
    """The test files that the column names; a name without a folder lies beside the one before it."""
    files, folder = list[Path](), ROOT
    for word in re.findall(r"`([^`]+(?:\.py|/))`", tests):
        path = ROOT / word if "/" in word else folder / word
        folder = path if path.is_dir() else path.parent
        files += files_of(path.relative_to(ROOT).as_posix())
    return files


@pytest.mark.parametrize(("promise", "tests"), promises())
def test_a_promise_has_a_test_that_every_commit_runs(promise: str, tests: str) -> None:
    files = named_files(tests)
    assert [path for path in files if not path.is_file()] == [], "a test that is not there"
    if tests == "stated limit":
        return
    programmes = set(re.findall(r"\b[SNX]\d+\b", tests)) & {*SMOKED_PROGRAMMES, "S9"}
    inside = [path for path in files if (ROOT / "tests") in path.parents]
    assert programmes or any(map(quick_tests, inside)), f"only make test-all holds: {promise}"


@pytest.mark.parametrize("name", SMOKE)
def test_a_smoke_test_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    assert (ROOT / "tests" / file).is_file()
    assert not test or f"def {test.partition('[')[0]}(" in (ROOT / "tests" / file).read_text(), test


def test_all_smoke_tests_of_spark_share_one_session() -> None:
    for name in SMOKE:
        file, _, test = name.partition("::")
        path = ROOT / "tests" / file
        marks = marks_by_test(path)
        if any("spark" in marks[one] for one in marks if test.partition("[")[0] in ("", one)):
            assert ROOT / "tests" / "streams" / "end_to_end" in path.parents, name
