"""X6: the compiled hot modules and their sources get the same inputs, and must answer byte for byte the same.

Each form runs in a process of its own, so that a compiled module that writes outside its memory ends nobody else. A
block of inputs follows from the seed, its kind and its number: the report names them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from crash.hot_cases import BLOCK_CASES, KINDS
from crash.programme import ProgrammeRun

__all__ = ["SKIPPED", "compare", "compare_compiled_with_plain"]

SKIPPED: Final = "compiler_skipped"
"""What is counted where nothing can be compiled."""

_ROOT: Final = Path(__file__).resolve().parent.parent
_BUILD: Final = _ROOT / "tools" / "build_compiled.py"
_SHOWN_CHARACTERS: Final = 300
_SHOWN_BYTES: Final = 200
_MAX_DIFFERENCES: Final = 5
"""Blocks that differ after which the programme ends: more of them say no more."""


class _Form:
    """One form of the hot modules in a process. `directory` holds the package."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        # Checks of Python's own allocator find what is written behind the end of an object.
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(directory), str(_ROOT))),
            "PYTHONMALLOC": "debug",
            "PYTHONHASHSEED": "0",
            "MILLSTREAM_PLAIN": "0",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crash.hot_cases"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.path = self.answer()

    def ask(self, words: str) -> None:
        """Ask for something without waiting for it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(words + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass

    def answer(self) -> Any:
        """The next answer; None where the process has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def end(self) -> str:
        """End the process; how it ended, in words."""
        said = self._process.communicate()[1]
        return f"it ended with {self._process.returncode}: {said.strip()[-_SHOWN_CHARACTERS:]}"


def compare_compiled_with_plain(run: ProgrammeRun) -> None:
    """Compile the hot modules, and compare both forms: 200,000 inputs, 10 million, 100 million."""
    target = run.scratch / "compiled"
    built = subprocess.run([sys.executable, str(_BUILD), str(target)], capture_output=True, text=True, check=False)
    if built.returncode:
        if "cannot be compiled" in built.stderr:
            run.count(SKIPPED)
            return
        run.fail(f"the build ended with {built.returncode}: {built.stderr[-1000:]}")
        return
    compare(run, target)


def compare(run: ProgrammeRun, target: Path) -> None:
    """Compare the compiled package below `target` with the sources of the work tree."""
    forms = (_Form("compiled", target), _Form("plain", _ROOT / "src"))
    compiled, plain = (form.path for form in forms)
    if compiled is None or compiled["compiled"] != compiled["modules"] or plain is None or plain["compiled"]:
        run.fail(f"the forms are not those to be compared: {compiled} and {plain}; {[form.end() for form in forms]}")
        return
    blocks = max(run.by_size(200_000, 10_000_000, 100_000_000) // BLOCK_CASES, len(KINDS))
    kinds = sorted(KINDS)
    for number in range(blocks):
        words = f"{kinds[number % len(kinds)]} {run.seed} {number // len(kinds)}"
        for form in forms:
            form.ask(words)
        answers = [form.answer() for form in forms]
        if None in answers:
            ends = "; ".join(f"{form.name}: {form.end()}" for form in forms)
            run.fail(f"a process was gone at block {words!r}: {ends}")
            return
        run.count("inputs", BLOCK_CASES)
        if answers[0] != answers[1]:
            _name_difference(run, forms, words)
            if len(run.failures) >= _MAX_DIFFERENCES:
                break
    for form in forms:
        form.end()


def _name_difference(run: ProgrammeRun, forms: tuple[_Form, _Form], words: str) -> None:
    for form in forms:
        form.ask(f"{words} all")
    compiled, plain = (form.answer() for form in forms)
    for place, ((data, ours), (same, theirs)) in enumerate(zip(compiled or (), plain or (), strict=False)):
        if data != same:
            run.fail(f"block {words!r}, input {place} is not the same for both")
            return
        if ours != theirs:
            at = next((at for at, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), 0)
            start = max(0, at - 40)
            shown = slice(start, start + _SHOWN_CHARACTERS)
            head = data[: 2 * _SHOWN_BYTES]
            run.fail(f"block {words!r}, input {place} {head}: compiled {ours[shown]!r}, plain {theirs[shown]!r}")
            return
    run.fail(f"block {words!r} differs, and not when it was asked again: the outcome hangs on what was before it")
