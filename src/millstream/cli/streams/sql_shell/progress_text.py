"""The progress of a job in one line, or as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.streams.jobs.progress import moment_text, watermark_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.streams.jobs.progress import JobProgress, OpenWindows, QueueProgress

__all__ = ["progress_line", "progress_values"]


SILENT_S = 60.0
"""A queue without rows for so long, while others have some, is named: it holds up every window."""

_SHOWN_QUEUES = 3


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
        "without_event_time": dict(progress.without_event_time),
        "rows_per_s": round(progress.rows_per_s),
        "watermark": None if watermark is None else watermark_text(progress),
        "behind": progress.behind,
        "hits": dict(progress.hits),
        "failed_calls": dict(progress.failed_calls),
        "cold_by_broker": dict(progress.cold_by_broker),
        "rows_between": dict(progress.rows_between),
        "rows_by": {sink: dict(counts) for sink, counts in progress.rows_by.items()},
        "open_windows": [_windows_values(windows) for windows in progress.open_windows],
        "queues": [_queue_values(queue) for queue in progress.queues],
        "trouble": progress.trouble,
        "notices": list(progress.notices),
    }


def _windows_values(windows: OpenWindows) -> dict[str, object]:
    return {
        "operator": windows.operator,
        "open": windows.count,
        "closes_at_watermark": moment_text(_whole_second(windows.closes_ms)),
    }


def _queue_values(queue: QueueProgress) -> dict[str, object]:
    watermark = queue.watermark_ms
    return {
        "table": queue.table,
        "queue": queue.queue,
        "offset": queue.offset,
        "behind": queue.behind,
        "silent_s": round(queue.silent_s),
        "watermark": None if watermark is None else moment_text(watermark),
    }


def progress_line(progress: JobProgress) -> str:
    """One line: rows in and out, speed, lag, watermark, and what was set aside."""
    out = sum(progress.rows_out.values())
    behind = "-" if progress.behind is None else f"{progress.behind:,}"
    aside = f", malformed {progress.malformed:,}, late {progress.late:,}" if progress.malformed or progress.late else ""
    if progress.without_event_time:
        tables = ", ".join(f"{table} {count:,}" for table, count in sorted(progress.without_event_time.items()))
        aside += f", without event time {tables}"
    if progress.failed_calls:
        aside += f", failed calls {sum(progress.failed_calls.values()):,} ({', '.join(sorted(progress.failed_calls))})"
    for table, count in sorted(progress.cold_by_broker.items()):
        aside += f", cold through the broker {table} {count:,}"
    for table, count in sorted(progress.rows_between.items()):
        aside += f", {table} {count:,}"
    if progress.state == "running":
        aside += _open_text(progress.open_windows)
    silent = [queue for queue in progress.queues if queue.silent_s > SILENT_S] if progress.state == "running" else []
    if silent and len(silent) < len(progress.queues):
        names = ", ".join(f"{queue.queue} ({queue.silent_s:,.0f} s)" for queue in silent[:_SHOWN_QUEUES])
        more = f" and {len(silent) - _SHOWN_QUEUES} more" if len(silent) > _SHOWN_QUEUES else ""
        aside += f", silent queues {names}{more}"
    sentences = [sentence for sentence in (progress.trouble, *progress.notices) if sentence]
    if sentences:
        aside += f". {' '.join(sentences)}"
    return (
        f"{progress.state}: rows in {progress.rows_in:,}, rows out {out:,}, {progress.rows_per_s:,.0f} rows/s, "
        f"behind {behind}, watermark {watermark_text(progress)}{aside}"
    )


def _open_text(open_windows: Sequence[OpenWindows]) -> str:
    if not open_windows:
        return ""
    count, closes_ms = sum(one.count for one in open_windows), min(one.closes_ms for one in open_windows)
    return f", open windows {count:,}, the first until watermark {moment_text(_whole_second(closes_ms))}"


def _whole_second(time_ms: int) -> int:
    """The time, or the next whole second: a window ends with its last millisecond."""
    return -(-time_ms // 1000) * 1000
