"""Metrics of jobs, as the leading job server reports them. Unknown values are omitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from millstream.telemetry.metrics import MetricsPage

__all__ = ["add_jobs"]

_JOBS: Final = "jobs"


def add_jobs(page: MetricsPage, jobs: Iterable[Mapping[str, Any]], now_ms: int) -> None:
    """Add the jobs, as `JobService.jobs` gives them."""
    for job in jobs:
        name = job["name"]
        page.add("millstream_job_state", 1, name, job["state"], node_type=_JOBS)
        page.add("millstream_job_restarts_total", job["restarts"], name, node_type=_JOBS)
        progress = job["progress"]
        if progress is not None:
            _add_progress(page, name, progress, now_ms)


def _add_progress(page: MetricsPage, name: str, progress: Mapping[str, Any], now_ms: int) -> None:
    page.add("millstream_job_rows_in_total", progress["rows_in"], name, node_type=_JOBS)
    page.add("millstream_job_batches_total", progress["batches"], name, node_type=_JOBS)
    page.add("millstream_job_late_rows_total", progress["late"], name, node_type=_JOBS)
    page.add("millstream_job_malformed_rows_total", progress["malformed"], name, node_type=_JOBS)
    for sink, rows in progress["rows_out"].items():
        page.add("millstream_job_rows_out_total", rows, name, sink, node_type=_JOBS)
    if progress["behind"] is not None:
        page.add("millstream_job_lag_messages", progress["behind"], name, node_type=_JOBS)
    if progress["lag_s"] is not None:
        page.add("millstream_job_lag_seconds", progress["lag_s"], name, node_type=_JOBS)
    if progress["watermark_ms"] is not None:
        page.add("millstream_job_watermark_seconds", progress["watermark_ms"] / 1000, name, node_type=_JOBS)
        lag_s = max(0.0, (now_ms - progress["watermark_ms"]) / 1000)
        page.add("millstream_job_watermark_lag_seconds", lag_s, name, node_type=_JOBS)
    if progress["batch_s"] is not None:
        page.add("millstream_job_batch_seconds", progress["batch_s"], name, node_type=_JOBS)
    if progress["checkpoint_ms"] is not None:
        seconds = progress["checkpoint_ms"] / 1000
        page.add("millstream_job_checkpoint_timestamp_seconds", seconds, name, node_type=_JOBS)
    if progress["state_bytes"] is not None:
        page.add("millstream_job_state_bytes", progress["state_bytes"], name, node_type=_JOBS)
    page.add("millstream_job_query_restarts_total", progress["restarts"], name, node_type=_JOBS)
