"""Submits the running program to a job server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from millstream.client.job_server import JobServerClient
from millstream.streams.errors import JobError

__all__ = ["program_is_read", "submit_program"]

_IS_READ: ContextVar[bool] = ContextVar("program_is_read", default=False)

_OWN = Path(__file__).parent


@contextmanager
def program_is_read() -> Iterator[None]:
    """While a program's file is read for its jobs, so that it does not hand itself in again."""
    before = _IS_READ.set(True)
    try:
        yield
    finally:
        _IS_READ.reset(before)


def submit_program(url: str, *, name: str, cores: int, memory_mb: int) -> str:
    """Hand in the file of the nearest caller outside of the SDK; the name of the job.

    Raises JobError JOB_FAILED where that is no file, as in a shell; else what `JobServerClient.submit` raises.
    """
    if _IS_READ.get():
        return name
    file = _file_of_caller()
    if file is None:
        remedy = "Write the job into a file, and run or submit that."
        raise JobError("JOB_FAILED", "Only a program in a file can be handed in to a job server.", remedy=remedy)
    text = file.read_text(encoding="utf-8")
    JobServerClient(url).submit(name=name, kind="program", text=text, cores=cores, memory_mb=memory_mb)
    return name


def _file_of_caller() -> Path | None:
    frame = sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).parent == _OWN:
        frame = frame.f_back
    file = Path(frame.f_code.co_filename)
    return file if file.is_file() else None
