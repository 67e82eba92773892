"""A driver that may be killed: `python -m crash.script_job NAMESERVER DIRECTORY ROWS` runs DIRECTORY/script.sql."""

from __future__ import annotations

from pathlib import Path

from crash.job_driver import run_job

__all__ = ["SCRIPT"]

SCRIPT = "script.sql"
"""The file of the job's statements; its tables end, and so does the job."""


def _script(directory: Path) -> str:
    return (directory / SCRIPT).read_text()


if __name__ == "__main__":
    raise SystemExit(run_job(_script, bounded=True))
