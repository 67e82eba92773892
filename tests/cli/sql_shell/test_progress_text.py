"""The progress of a job in words: what was set aside, and which queues hold it up."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from dataclasses import replace

from millstream.cli.streams.sql_shell.progress_text import progress_line, progress_values
from millstream.streams.jobs.progress import JobProgress, OpenWindows, QueueProgress

BUSY, SILENT = QueueProgress("t", "b/0", 7, 2, 1.0, 1_767_225_600_000), QueueProgress("t", "b/1", 3, 0, 75.4)


def test_a_queue_that_is_silent_while_others_are_not_is_named() -> None:
    assert "silent queues b/1 (75 s)" in progress_line(JobProgress(queues=(BUSY, SILENT)))


def test_queues_are_not_named_where_all_are_silent_or_the_job_is_over() -> None:
    assert "silent" not in progress_line(JobProgress(queues=(SILENT, SILENT)))
    assert "silent" not in progress_line(JobProgress(queues=(BUSY, SILENT), state="ended"))


def test_of_many_silent_queues_three_are_named() -> None:
    many = tuple(replace(SILENT, queue=f"b/{number}") for number in range(2, 7))
    assert "b/2 (75 s), b/3 (75 s), b/4 (75 s) and 2 more" in progress_line(JobProgress(queues=(BUSY, *many)))


def test_each_queue_is_told_as_values() -> None:
    values = progress_values(JobProgress(queues=(BUSY, SILENT), hits={"r": 2}))
    assert values["hits"] == {"r": 2}
    assert values["queues"] == [
        {"table": "t", "queue": "b/0", "offset": 7, "behind": 2, "silent_s": 1, "watermark": "2026-01-01T00:00:00Z"},
        {"table": "t", "queue": "b/1", "offset": 3, "behind": 0, "silent_s": 75, "watermark": None},
    ]


def test_open_windows_and_rows_between_queries_are_told() -> None:
    progress = JobProgress(
        rows_out={"alerts": 2},
        rows_between={"hits_packed": 1_234},
        open_windows=(
            OpenWindows("0-windowaggregate", 4, 1_767_225_700_000),
            OpenWindows("1-match", 1_000, 1_767_225_599_999),
        ),
    )
    line = progress_line(progress)
    assert "rows out 2," in line
    assert ", hits_packed 1,234, open windows 1,004, the first until watermark 2026-01-01T00:00:00Z" in line
    assert "without event time" not in line
    timeless = replace(progress, without_event_time={"u": 1, "t": 630})
    assert "without event time t 630, u 1, hits_packed" in progress_line(timeless)
    assert progress_values(timeless)["without_event_time"] == {"u": 1, "t": 630}
    assert "open windows" not in progress_line(replace(progress, state="ended"))
    values = progress_values(progress)
    assert values["rows_between"] == {"hits_packed": 1_234}
    assert values["open_windows"] == [
        {"operator": "0-windowaggregate", "open": 4, "closes_at_watermark": "2026-01-01T00:01:40Z"},
        {"operator": "1-match", "open": 1_000, "closes_at_watermark": "2026-01-01T00:00:00Z"},
    ]


def test_what_is_to_be_said_of_a_start_stands_behind_what_hinders() -> None:
    progress = JobProgress(trouble="The broker is away.", notices=("The group g has no offsets.",))
    assert progress_line(progress).endswith(". The broker is away. The group g has no offsets.")
    assert progress_values(progress)["notices"] == ["The group g has no offsets."]
