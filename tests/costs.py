"""What a test costs, by its marker, and a check that it starts nothing that its marker does not tell.

`make test` runs every test without one of the markers of `COSTLY`, and those of `smoke`; `make test-all` runs all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["COSTLY", "QUICK", "StartedPrograms"]

COSTLY: Final = ("process", "spark", "official", "kill", "long")
"""The markers of what `make test` leaves out; a test without any of them is a unit test."""

QUICK: Final = f"smoke or not ({' or '.join(COSTLY)})"
"""The tests of `make test`, for pytest's option `-m`."""

_STARTING: Final = frozenset({"process", "spark", "official", "kill"})
"""The markers of tests that may start Python and Java."""


class StartedPrograms:
    """A pytest plugin that fails a test which starts Python or Java without the marker that says so."""

    def __init__(self) -> None:
        self._started: list[str] = []
        self._start = BaseProcess.start
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            # The audit event names the executable only where it is not the first argument.
            executable, words = arguments[0], arguments[1]
            self._started.append(Path(os.fsdecode(executable or words[0])).name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Look at what the test and the fixtures that it is the first to use start."""
        self._started.clear()
        started = self._started

        def start(process: BaseProcess) -> None:
            started.append("python")
            self._start(process)

        BaseProcess.start = start  # type: ignore[method-assign]
        try:
            return (yield)
        finally:
            BaseProcess.start = self._start  # type: ignore[method-assign]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Turn the report of a passed test into a failure that names the missing marker."""
        report: Any = yield
        if report.passed and call.when == "teardown" and (missing := self._missing_marker(item)):
            report.outcome = "failed"
            report.longrepr = missing
        return report

    def _missing_marker(self, item: pytest.Item) -> str | None:
        markers = {marker.name for marker in item.iter_markers()}
        if "spark" in getattr(item, "fixturenames", ()) and "spark" not in markers:
            return "It uses a Spark session: mark it with spark."
        for program in self._started:
            if program.startswith(("python", "java", "spark-submit")) and not markers & _STARTING:
                return f"It starts the program {program}: mark it with one of {', '.join(sorted(_STARTING))}."
        return None
