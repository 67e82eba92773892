"""What plain Python makes of the messages of the job that is killed while it is scaled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from crash.operator_job import Event, OperatorJob, database_tables, differences, expected_rows
from crash.sink_databases import sqlite

from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sql.session.compiler import SqlSession

EVENTS = [Event(0, 1, 10), Event(1, 2, 5), Event(2, 1, 20), Event(3, 1, 30), Event(19, 1, 40), Event(20, 1, 7)]


def test_each_operator_has_the_rows_that_are_worked_out_by_hand() -> None:
    found = expected_rows(EVENTS, [0, 3, 99], until=Event(20, 0, 0).moment)
    first = "2026-01-01 00:00:00"
    assert found == {
        "sums": Counter([(1, 5, 107), (2, 1, 5)]),
        "windows": Counter([(1, first, 4, 100), (2, first, 1, 5)]),
        "joined": Counter([(0, "w0"), (3, "w3")]),
        "matched": Counter([(1, 0, 2), (1, 3, 19)]),
    }


def test_windows_and_patterns_that_event_time_has_not_come_to_have_no_rows() -> None:
    found = expected_rows(EVENTS, [], until=Event(2, 0, 0).moment)
    assert not found["windows"]
    assert found["matched"] == Counter([(1, 0, 2)])


def test_the_job_binds_with_all_its_sinks_and_its_tables_can_be_made(tmp_path: Path) -> None:
    job = OperatorJob("out", tmp_path, [sqlite(tmp_path, database_tables(["out"]))])
    plan = SqlSession(nameserver="127.0.0.1:9").compile(job.script())[-1]
    assert isinstance(plan, JobPlan)
    assert len(plan.sinks) == 11


def test_a_row_that_is_doubled_lost_or_altered_is_a_difference_and_other_names_are_not_looked_at() -> None:
    wanted = {"joined": Counter([(1, "a"), (2, "b")])}
    found = [
        ("whole", "joined", Counter([(2, "b"), (1, "a")])),
        ("doubled", "joined", Counter([(1, "a"), (2, "b"), (2, "b")])),
        ("lost", "joined", Counter([(1, "a")])),
        ("altered", "joined", Counter([(1, "a"), (2, "c")])),
        ("other", "windows", Counter([(9, "z")])),
    ]
    assert list(differences(found, wanted)) == [
        ("doubled", "too much", Counter([(2, "b")])),
        ("lost", "missing", Counter([(2, "b")])),
        ("altered", "too much", Counter([(2, "c")])),
        ("altered", "missing", Counter([(2, "b")])),
    ]
