"""Records of jobs for tests: all that is not said has a value that does not matter."""

from __future__ import annotations

from typing import Any

from millstream.job_server.job_record import JobDemand, JobRecord

__all__ = ["job"]


def job(name: str, *, cores: int = 0, memory_mb: int = 0, at_ms: int = 0, **values: Any) -> JobRecord:
    """A job that is to run."""
    given = {"text": "", "submitted_at_ms": at_ms, "changed_at_ms": at_ms, **values}
    return JobRecord(name=name, demand=JobDemand(cores, memory_mb), **given)
