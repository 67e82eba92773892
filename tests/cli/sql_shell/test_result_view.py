"""What a job's results look like in each mode and format."""

from __future__ import annotations

import datetime
import io
import json
import logging

import pytest

from millstream.cli.options import OutputFormat
from millstream.cli.printer import WarningLines
from millstream.cli.streams.sql_shell.progress_text import progress_line
from millstream.cli.streams.sql_shell.result_view import ResultMode, ResultView, ShowSettings, shapes_of
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.result_table import ResultShape, cell_text

ADD, BEFORE, AFTER, DELETE = RowKind
BIDS = "CREATE TABLE bids (item STRING, price INT) WITH ('connector' = 'rocketmq', 'topic' = 'bids');"
COUNTS = ResultShape(("item", "n"), changes=True, key=(0,))
APPENDED = ResultShape(("item", "n"))
CHANGES = ResultRows("result", ("item", "n"), [("a", 1), ("a", 1), ("a", 2)], [ADD, BEFORE, AFTER])
ROWS = ResultRows("result", ("item", "n"), [("a", 1), ("b", None)])


def shape(select: str) -> ResultShape:
    plan = SqlSession().compile(BIDS + select)[-1]
    assert isinstance(plan, JobPlan | QueryPlan)
    (found,) = shapes_of(plan, "result").values()
    return found


def shown(
    capsys: pytest.CaptureFixture[str],
    shape: ResultShape,
    rows: ResultRows,
    *,
    output: OutputFormat = "plain",
    mode: ResultMode = "table",
    bounded: bool = False,
) -> list[str]:
    with ResultView(output, ShowSettings(mode), bounded=bounded) as view:
        view.expect({"result": shape})
        view.rows(rows)
    return capsys.readouterr().out.splitlines()


def test_rows_that_only_come_are_shown_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, APPENDED, ROWS) == ["result\ta\t1", "result\tb\tNULL"]


def test_an_endless_result_that_changes_tells_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, COUNTS, CHANGES) == ["result\t+I\ta\t1", "result\t-U\ta\t1", "result\t+U\ta\t2"]


@pytest.mark.parametrize("mode", ["table", "tableau"])
def test_a_bounded_result_that_changes_is_shown_once_as_it_is_in_the_end(
    capsys: pytest.CaptureFixture[str], mode: ResultMode
) -> None:
    assert shown(capsys, COUNTS, CHANGES, mode=mode, bounded=True) == ["result\ta\t2"]


def test_changelog_mode_tells_changes_of_bounded_results_and_of_rows_that_only_come(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(shown(capsys, COUNTS, CHANGES, mode="changelog", bounded=True)) == 3
    assert shown(capsys, APPENDED, ROWS, mode="changelog")[0] == "result\t+I\ta\t1"


def test_json_lines_tell_the_kind_of_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in shown(capsys, COUNTS, CHANGES, output="json")]
    assert lines[1] == {"sink": "result", "op": "-U", "row": {"item": "a", "n": 1}}
    assert [line["op"] for line in lines] == ["+I", "-U", "+U"]


def test_lines_of_a_table_stand_under_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, COUNTS, CHANGES, output="table") == [
        "op  item  n",
        "+I  a     1",
        "-U  a     1",
        "+U  a     2",
    ]


def test_a_print_sink_always_tells_changes_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ResultShape(("item", "n"), changes=True, is_query=False)
    assert len(shown(capsys, sink, CHANGES, bounded=True)) == 3


def test_a_sorted_bounded_result_is_shown_in_its_order(capsys: pytest.CaptureFixture[str]) -> None:
    found = shape("SELECT item, price AS n FROM bids ORDER BY n DESC NULLS FIRST LIMIT 5")
    assert shown(capsys, found, ROWS, bounded=True) == ["result\tb\tNULL", "result\ta\t1"]


def test_the_key_of_a_grouped_result_names_its_rows() -> None:
    found = shape("SELECT MAX(price), item FROM bids GROUP BY item")
    assert (found.changes, found.key, found.columns) == (True, (1,), ("EXPR$0", "item"))


def test_rows_that_only_come_have_no_key() -> None:
    found = shape("SELECT item FROM bids")
    assert (found.changes, found.key, found.is_query) == (False, None, True)


def test_a_print_sink_goes_by_its_identifier() -> None:
    sink = "CREATE TABLE out (item STRING) WITH ('connector' = 'print', 'print-identifier' = 'seen');"
    plan = SqlSession().compile(BIDS + sink + "INSERT INTO out SELECT item FROM bids")[-1]
    assert isinstance(plan, JobPlan)
    assert shapes_of(plan, "result") == {"seen": ResultShape(("item",), is_query=False)}


def test_settings_of_the_session_say_how_results_are_shown() -> None:
    found = ShowSettings.of(
        {
            "sql-client.execution.result-mode": "CHANGELOG",
            "sql-client.execution.max-table-result.rows": "7",
            "table.local-time-zone": "GMT+02:00",
        }
    )
    assert (found.mode, found.max_rows) == ("changelog", 7)
    instant = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
    assert cell_text(instant, found.zone) == "2026-01-01 14:00:00.000+02:00"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (1.5, "1.5"),
        (b"\x00\xff", "x'00ff'"),
        ([1, None], "[1, NULL]"),
        ([("a", 1)], "{a=1}"),
        ({"city": "Bonn", "zip": 53111}, "(Bonn, 53111)"),
        (datetime.datetime(2026, 1, 1, 12, 0, 0, 5000), "2026-01-01 12:00:00.005"),
        (datetime.datetime(2026, 1, 1, 12, 0, 0, 5001), "2026-01-01 12:00:00.005001"),
        (datetime.date(2026, 1, 1), "2026-01-01"),
    ],
)
def test_values_are_shown_as_flink_shows_them(value: object, text: str) -> None:
    assert cell_text(value) == text


def test_the_progress_line_tells_rows_speed_lag_watermark_and_what_was_set_aside() -> None:
    progress = JobProgress(
        rows_in=1234, rows_out={"result": 56}, rows_per_s=789.4, watermark_ms=0, behind=10, late=2, malformed=1
    )
    assert progress_line(progress) == (
        "running: rows in 1,234, rows out 56, 789 rows/s, behind 10, watermark 1970-01-01T00:00:00Z, "
        "malformed 1, late 2"
    )


def test_a_warning_beside_a_live_table_is_a_line_above_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = WarningLines()
    handler.handle(logging.makeLogRecord({"levelname": "WARNING", "msg": "The job goes on in %g s.", "args": (1.5,)}))
    assert capsys.readouterr().err == "warning: The job goes on in 1.5 s.\n"
    redirected = io.StringIO()
    monkeypatch.setattr("sys.stderr", redirected)
    handler.handle(logging.makeLogRecord({"levelname": "WARNING", "msg": "again"}))
    assert redirected.getvalue() == "warning: again\n"
