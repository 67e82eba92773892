"""The progress of a job in one line, or as values."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.streams.jobs.progress import JobProgress

__all__ = ["progress_line", "progress_values", "watermark_text"]


def progress_values(progress: JobProgress) -> dict[str, object]:
    """The progress as plain values; what is unknown is None."""
    watermark = progress.watermark_ms
    return {
        "state": progress.state,
        "rows_in": progress.rows_in,
        "rows_out": dict(progress.rows_out),
        "malformed": progress.malformed,
        "malformed_last_minute": progress.malformed_last_minute,
        "late": progress.late,
        "late_by": dict(progress.late_by),
        "rows_per_s": round(progress.rows_per_s),
        "watermark": None if watermark is None else watermark_text(progress),
        "behind": progress.behind,
        "hits": dict(progress.hits),
        "trouble": progress.trouble,
    }


def progress_line(progress: JobProgress) -> str:
    """One line: rows in and out, speed, lag, watermark, and what was set aside."""
    out = sum(progress.rows_out.values())
    behind = "-" if progress.behind is None else f"{progress.behind:,}"
    aside = f", malformed {progress.malformed:,}, late {progress.late:,}" if progress.malformed or progress.late else ""
    if progress.trouble:
        aside += f". {progress.trouble}"
    return (
        f"{progress.state}: rows in {progress.rows_in:,}, rows out {out:,}, {progress.rows_per_s:,.0f} rows/s, "
        f"behind {behind}, watermark {watermark_text(progress)}{aside}"
    )


def watermark_text(progress: JobProgress) -> str:
    """The watermark in UTC to the second; a dash where there is none."""
    if progress.watermark_ms is None:
        return "-"
    moment = datetime.datetime.fromtimestamp(progress.watermark_ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
