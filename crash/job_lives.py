"""The lives of a bounded job whose driver is killed again and again until it may end by itself."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from crash.job_batches import end_group
from crash.programme import ProgrammeRun

__all__ = ["LIFE_LIMIT_S", "Driver", "ends_after_kills"]

LIFE_LIMIT_S = 900.0
"""How long one life of a driver may be."""

_FAILED_LIVES = 5
"""Lives that may end with an error before the job is a failure: a busy machine starts Python too slowly for Spark."""

Driver = subprocess.Popen[bytes]


def ends_after_kills(
    run: ProgrammeRun, root: Path, command: Sequence[str], kills: int, moment: Callable[[Driver], None]
) -> bool:
    """Whether the job of `command` ends; its first lives are killed as soon as `moment` returns.

    What the drivers say goes to the file `said` in `root`. A job that does not end is noted as a failure.
    """
    killed = failed = 0
    while failed <= _FAILED_LIVES:
        with (root / "said").open("ab") as said:
            driver = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        if killed < kills:
            moment(driver)
        else:
            driver.wait(LIFE_LIMIT_S)
        is_killed = driver.poll() is None
        end_group(driver)
        code = driver.wait()
        if is_killed:
            killed += 1
            run.count("kills")
        elif code == 0:
            return True
        else:
            failed += 1
            run.count("lives_that_failed")
    run.fail(f"{' '.join(command[2:])} did not end", root)
    return False
