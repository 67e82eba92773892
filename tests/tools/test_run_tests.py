"""The lanes of `make test` leave out nothing and hide no failure."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from costs import QUICK

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "tools" / "run_tests.py"


@pytest.fixture
def lanes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_tests", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("run_all", [True, False])
def test_every_file_of_tests_is_run_once(lanes: ModuleType, run_all: bool) -> None:
    run = [place for group in lanes.groups(run_all=run_all) for place in group]
    files = [*(ROOT / "tests").rglob("test_*.py")]
    assert files
    for path in files:
        assert len([place for place in run if place in (path, *path.parents)]) == 1, path
    assert not [path for path in files if path.parent == ROOT / "tests"]


def test_what_is_judged_by_the_clock_is_run_first_with_nothing_beside_it(lanes: ModuleType) -> None:
    alone, together = lanes.steps([], ["make", "lint"], run_all=True)
    assert [step.args[0] for step in alone] == [[ROOT / "tests" / "crash"]]
    assert len(together) == len(lanes.groups(run_all=True)) - 1 + len(["make lint", "the archive of Spark's classes"])


def test_make_test_leaves_out_what_costs_much_and_tries_the_same_examples_each_time(lanes: ModuleType) -> None:
    alone, (lint, *folders) = lanes.steps(["-x"], ["make", "lint"], run_all=False)
    assert (alone, lint.args[0]) == ([], "make lint")
    assert {tuple(step.args[1]) for step in folders} == {("-m", QUICK, "--hypothesis-profile", "quick", "-x")}


@pytest.mark.parametrize(
    ("run_all", "needed_bytes", "is_in_memory"), [(False, 0, True), (True, 0, False), (False, 2**62, False)]
)
def test_the_stores_of_make_test_lie_in_memory_where_there_is_room(
    lanes: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_all: bool,
    needed_bytes: int,
    is_in_memory: bool,
) -> None:
    for name in ("TMPDIR", "PYTEST_DEBUG_TEMPROOT"):
        monkeypatch.setenv(name, "/as/before")
    monkeypatch.setattr(lanes, "MEMORY_DISK", tmp_path)
    monkeypatch.setattr(lanes, "MEMORY_DISK_BYTES", needed_bytes)
    with lanes.temporary_root(run_all=run_all):
        roots = {os.environ[name] for name in ("TMPDIR", "PYTEST_DEBUG_TEMPROOT")}
        assert roots == ({str(path) for path in tmp_path.iterdir()} if is_in_memory else {"/as/before"})
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_what_fails_is_named_be_it_a_folder_or_the_command_beside_them(
    lanes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / name for name in ("good", "bad", "empty")]
    for folder in folders:
        folder.mkdir()
    (folders[0] / "test_good.py").write_text("def test_it(): pass")
    (folders[1] / "test_bad.py").write_text("def test_it(): assert False")
    monkeypatch.setattr(lanes, "TESTS", tmp_path)
    monkeypatch.setattr(lanes, "groups", lambda *, run_all: [[folder] for folder in folders])
    monkeypatch.setenv("MILLSTREAM_CLASS_ARCHIVES", "off")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    command = [sys.executable, "-c", "print('beside'); raise SystemExit(3)"]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--all", "-k", "test_it", "--", *command])
    assert lanes.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert {"1 passed", "1 failed"} <= {line.partition(" in ")[0] for line in said}
    assert "beside" in said
    assert said[-1].startswith("FAIL: ")
    named = set(said[-1].removeprefix("FAIL: ").rpartition(" (")[0].split(", "))
    assert named == {"bad", " ".join(command)}
    monkeypatch.setattr(lanes, "groups", lambda *, run_all: [[folders[2]]])
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--all"])
    assert lanes.main() == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASS ")
