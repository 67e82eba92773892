"""The lanes of `make test` leave out nothing and hide no failure."""

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "tools" / "run_tests.py"


def test_every_folder_with_tests_is_run_once() -> None:
    spec = importlib.util.spec_from_file_location("run_tests", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    lanes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lanes)
    run = [folder for group in lanes.groups() for folder in group]
    for path in files_of_tests():
        assert [folder for folder in run if folder in path.parents] == [one_of(run, path)], path
    assert not [path for path in files_of_tests() if path.parent == ROOT / "tests"]


def one_of(folders: list[Path], path: Path) -> Path | None:
    return next((folder for folder in folders if folder in path.parents), None)


def files_of_tests() -> list[Path]:
    return [*(ROOT / "tests").rglob("test_*.py")]


def test_an_option_that_pytest_refuses_fails_in_every_folder() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--no-such-option"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "FAIL: " in done.stdout
    assert all(name in done.stdout.splitlines()[-1] for name in ("crash", "streams", "model"))
