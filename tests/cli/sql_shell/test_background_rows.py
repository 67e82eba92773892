"""Rows of jobs that came while the user typed."""

from __future__ import annotations

from millstream.cli.streams.sql_shell.background_rows import BackgroundRows
from millstream.streams.jobs.progress import ResultRows
from millstream.streams.plan.changelog import RowKind


def test_rows_of_print_sinks_wait_for_the_prompt_and_the_newest_are_kept() -> None:
    waiting = BackgroundRows()
    for number in range(50):
        waiting.add(ResultRows("out", ("n",), [(number,)], [RowKind.INSERT]))
    waiting.add(ResultRows("log", ("n",), [(number,) for number in range(100)]))
    (out, out_count), (log, log_count) = waiting.take()
    assert (out.rows[0], out.rows[-1], len(out.kinds or ()), out_count) == ((30,), (49,), 20, 50)
    assert (log.rows[0], log.rows[-1], log.kinds, log_count) == ((80,), (99,), None, 100)
    assert waiting.take() == []
