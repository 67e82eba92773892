"""S8, kill -9 of the driver of Nexmark's queries at moments of chance: the sink's rows are those of a run in peace."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from crash.job_lives import LIFE_LIMIT_S, Driver, ends_after_kills
from crash.nexmark_job import table_of
from crash.programme import ProgrammeRun, scratch_directory

__all__ = ["kill_queries"]

QUERIES = ("q3", "q5", "q9", "q15", "q19", "cep/q0")
"""A join without bounds, windows of windows, a rank over a join, distinct counts, ranks, and a pattern."""

CI_QUERY = "q15"
"""One whose rows change all the time."""

_EVENTS = 2_000
_POLL_S = 0.1


def kill_queries(run: ProgrammeRun) -> None:
    """S8. One query with one kill (CI), each with ten (full), with a hundred (soak), at most one in a micro-batch."""
    queries = (CI_QUERY,) if run.by_size(1, 0, 0) else QUERIES
    kills = run.by_size(1, 10, 100)
    rows = _EVENTS // run.by_size(6, 20, 50)
    for name in queries:
        with scratch_directory() as root:
            _played(run, root / "peace", name, rows, 0)
            _played(run, root / "killed", name, rows, kills)
            _compare(run, root, name)


def _played(run: ProgrammeRun, directory: Path, name: str, rows: int, kills: int) -> None:
    """Lives of the job, the first ones killed some time after a micro-batch that had not been planned before."""

    def moment(driver: Driver) -> None:
        _wait_for_batch(driver, directory, run.random.randint(1, 3))
        time.sleep(run.random.random())

    directory.mkdir(parents=True)
    command = [sys.executable, "-m", "crash.nexmark_job", str(directory), name, str(_EVENTS), str(rows)]
    if ends_after_kills(run, directory, command, kills, moment):
        run.count("runs")


def _wait_for_batch(driver: Driver, directory: Path, further: int) -> None:
    """Until so many more micro-batches are planned, or the driver has ended."""
    wanted, limit_s = _planned(directory) + further, time.monotonic() + LIFE_LIMIT_S
    while driver.poll() is None and _planned(directory) < wanted and time.monotonic() < limit_s:
        time.sleep(_POLL_S)


def _planned(directory: Path) -> int:
    return sum(path.name.isdigit() for path in (directory / "checkpoints").glob("job/*/spark/offsets/*"))


def _compare(run: ProgrammeRun, root: Path, name: str) -> None:
    peace, _ = table_of(root / "peace")
    killed, wrong = table_of(root / "killed")
    run.count("rows", sum(killed.values()))
    if wrong:
        run.fail(f"{name} takes back rows that were never told, in micro-batch {wrong[0]}", root)
    for words, rows in (("too much", killed - peace), ("missing", peace - killed)):
        if rows:
            run.fail(f"{name} after kills: {sum(rows.values())} rows {words}, such as {next(iter(rows))}", root)
