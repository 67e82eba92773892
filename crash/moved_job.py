"""A driver that may be killed, each on a machine of its own: `python -m crash.moved_job NAMESERVER DIRECTORY ROWS`.

The job is that of `crash.topic_job`. It begins without the checkpoints that the driver before it has left, and goes on
from their copy: in lives by turns with as many tasks as the session has cores, and with three.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from crash.job_driver import run_job
from crash.topic_job import script_of

_LIVES = "lives"


def _script(directory: Path) -> str:
    lives = directory / _LIVES
    with lives.open("a") as file:
        file.write("x")
    tasks = "SET 'parallelism.default' = '3';" if lives.stat().st_size % 2 == 0 else ""
    return f"SET 'state.mirror' = 'topic'; {tasks} {script_of(directory)}"


if __name__ == "__main__":
    shutil.rmtree(Path(sys.argv[2]) / "checkpoints", ignore_errors=True)
    raise SystemExit(run_job(_script, bounded=True))
