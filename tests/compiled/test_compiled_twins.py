"""The compiled package: Python takes it, MILLSTREAM_PLAIN leaves it, and it answers as the sources do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from crash.catalogue import run_programme
from crash.compiled_twins import compare
from crash.programme import ProgrammeRun, Size

from millstream.hot_modules import HOT_MODULES

# All hot modules are compiled within one test, which takes minutes on a busy machine.
pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parent.parent.parent

FORMS = """
import importlib, json, sys
from millstream.hot_modules import HOT_MODULES, look_at_hot_path
files = [importlib.import_module(name).__file__ for name in HOT_MODULES]
print(json.dumps([sum(not file.endswith(".py") for file in files), look_at_hot_path().compiled]))
"""


@pytest.mark.parametrize(("plain", "compiled_modules"), [("0", len(HOT_MODULES)), ("1", 0)])
def test_python_takes_all_compiled_modules_unless_the_plain_ones_are_asked_for(
    plain: str, compiled_modules: int, compiled: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(compiled), "MILLSTREAM_PLAIN": plain}
    said = subprocess.run([sys.executable, "-c", FORMS], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == [compiled_modules, compiled_modules]


def test_both_forms_answer_the_same_to_whatever_they_are_given(compiled: Path, tmp_path: Path) -> None:
    run = ProgrammeRun(seed=20, size=Size.CI, scratch=tmp_path, keep=tmp_path)
    compare(run, compiled)
    assert not run.failures, run.verdict("X6", 0.0)
    assert run.counts["inputs"] >= 200_000


def test_a_type_that_is_too_narrow_is_found(builder: ModuleType, compiled: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src" / "millstream", source / "millstream", ignore=shutil.ignore_patterns("__pycache__"))
    # A byte is shifted by up to 35 bits.
    types = source / "millstream" / "protocol" / "grpc" / "plain_send.pxd"
    text = types.read_text()
    assert "byte=cython.longlong" in text
    types.write_text(text.replace("byte=cython.longlong", "byte=cython.uchar"))
    target = tmp_path / "compiled"
    builder.build(target, source)
    run = ProgrammeRun(seed=20, size=Size.SMOKE, scratch=tmp_path, keep=tmp_path)
    compare(run, target)
    assert run.failures
    assert "block 'send 20 " in run.failures[0]


def test_the_programme_builds_by_itself(compiled: Path, tmp_path: Path) -> None:
    run = run_programme("X6", seed=20, size=Size.SMOKE, keep=tmp_path)
    assert not run.failures, run.verdict("X6", 0.0)
    assert run.counts["inputs"]
