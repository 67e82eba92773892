"""The counts of a job from Spark's reports, the cause of its end, and its settings."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.model.errors import Unreachable
from millstream.streams.connectors.rocketmq.settings import SourceSettings
from millstream.streams.errors import JobError
from millstream.streams.jobs.progress import OpenWindows, QueueProgress
from millstream.streams.jobs.restarts import first_cause
from millstream.streams.jobs.settings import DEFAULT_MAX_ROWS, JobSettings
from millstream.streams.jobs.tally import Tally
from millstream.streams.operators.state import OpenEnds
from millstream.streams.plan.tables import Table
from millstream.streams.spark.source.dead_letters import DeadLetters, MalformedWriter, Refusals, malformed_spool
from millstream.streams.spark.source.position import Position, Slice

Report = dict[str, object]


def report(batch: int, end: int, *, latest: int | None = None) -> Report:
    """What Spark says of a micro-batch that ended at offset `end` of one queue, read by two passes."""
    source = {
        "endOffset": {"queues": {"q/0": end}},
        "latestOffset": None if latest is None else {"queues": {"q/0": latest}},
        "numInputRows": 2 * end,
    }
    return {
        "batchId": batch,
        "batchDuration": 500,
        "sources": [source],
    }


def test_rows_in_come_from_positions_and_are_counted_once_however_many_passes_read_them() -> None:
    tally = Tally({"": Position({"q/0": 10})})
    for batch, end in ((0, 40), (0, 40), (1, 70), (2, 70)):
        tally.absorb(report(batch, end, latest=100))
    progress = tally.progress("running")
    assert (progress.rows_in, progress.behind, progress.rows_per_s) == (60, 30, 60.0)


def test_a_table_is_unread_while_every_row_that_was_read_of_it_was_refused() -> None:
    tally = Tally({name: Position({"q/0": 10}, name=name) for name in ("a", "b", "c")})
    tally.note_refusal("a", 2, "no JSON")
    tally.note_refusal("a", 1, "no number")
    tally.note_refusal("b", 1, "no JSON")
    tally.note_refusal("c", 0, "")
    assert tally.unread() == {}, "what was read of a table is not known yet"
    for batch, name in enumerate(("a", "b", "c")):
        end = {"queues": {"q/0": 13}, "name": name}
        tally.absorb({**report(batch, 0), "sources": [{"endOffset": end, "latestOffset": end}]})
    assert tally.unread() == {"a": "no JSON"}


def test_what_is_told_of_an_unread_table_names_topic_reason_and_remedy(tmp_path: Path) -> None:
    spool, remedy = tmp_path / "spool", "Name their format."
    spool.mkdir()
    letters = DeadLetters(malformed_spool(spool), "hello", None, "", 0.0, table="words", remedy=remedy)
    assert letters.deliver() == Refusals()
    writer = MalformedWriter(str(spool), Slice("broker-a/0", 0, 2), keep_bodies=True)
    writer.add(0, "JSON is\nmalformed", b"first")
    writer.add(1, "another", b"second")
    writer.finish()
    refusals = letters.deliver()
    assert refusals == Refusals(2, "JSON is\nmalformed")
    assert letters.trouble(refusals.reason) == (
        "No row of hello fits the table words; the first is refused: JSON is malformed. Name their format."
    )


def test_each_queue_tells_where_it_stands_and_since_when_it_is_silent() -> None:
    seconds = [100.0]
    tally = Tally({"t": Position({"q/0": 10, "q/1": 5}, name="t")}, clock=lambda: seconds[0])

    def read(batch: int, first: int) -> None:
        end = {"queues": {"q/0": first, "q/1": 5}, "name": "t"}
        latest = {"queues": {"q/0": 30, "q/1": 5}, "name": "t"}
        tally.absorb({**report(batch, 0), "sources": [{"endOffset": end, "latestOffset": latest}]})

    seconds[0] = 130.0
    read(0, 20)
    seconds[0] = 170.0
    read(1, 20)
    tally.saw_times(1_767_225_600_000_000, {("t", "q/1"): 1_767_225_601_000_000})
    progress = tally.progress("running")
    assert progress.queues == (
        QueueProgress("t", "q/0", 20, 10, 40.0),
        QueueProgress("t", "q/1", 5, 0, 70.0, 1_767_225_601_000),
    )
    assert progress.watermark_ms == 1_767_225_600_000


def test_rows_without_event_time_are_added_up_by_table() -> None:
    tally = Tally({})
    for untimed in ({"t": 600}, {}, {"t": 30, "u": 1}):
        tally.saw_times(None, {}, untimed)
    assert tally.progress("running").without_event_time == {"t": 630, "u": 1}


def test_the_final_tick_does_not_show_as_the_watermark() -> None:
    tally = Tally({})
    assert tally.progress("running").watermark_ms is None
    noon = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
    for moment in (
        datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
        noon,
        datetime.datetime(9998, 12, 31, 23, 59, 55, tzinfo=datetime.UTC),
    ):
        tally.saw_times(int(moment.timestamp() * 1_000_000), {})
    assert tally.progress("ended").watermark_ms == int(noon.timestamp() * 1000)


def test_rows_for_another_query_of_the_job_are_none_that_go_out() -> None:
    tally = Tally({})
    for _ in range(2):
        tally.note_delivery({"a": 1}, malformed=0, rows_between={"hits_packed": 7})
    progress = tally.progress("running")
    assert (progress.rows_out, progress.rows_between) == ({"a": 2}, {"hits_packed": 14})


def test_rows_of_merged_inserts_are_added_up_by_what_tells_them_apart() -> None:
    tally = Tally({})
    tally.note_delivery({"alerts": 3}, malformed=0, rows_by={"alerts": {"r1": 2, "r2": 1}})
    tally.note_delivery({"alerts": 1, "other": 1}, malformed=0, rows_by={"alerts": {"r2": 1}, "other": {"x": 1}})
    assert tally.progress("running").rows_by == {"alerts": {"r1": 2, "r2": 2}, "other": {"x": 1}}


def test_open_windows_are_told_with_the_watermark_that_closes_the_first() -> None:
    tally = Tally({})
    assert tally.progress("running").open_windows == ()
    tally.saw_ends({"1-match": OpenEnds(2, 1_772_366_400_999_000), "0-rank": OpenEnds()})
    assert tally.progress("running").open_windows == (OpenWindows("1-match", 2, 1_772_366_400_999),)
    tally.saw_ends({"1-match": OpenEnds()})
    assert tally.progress("running").open_windows == ()


def test_rows_out_are_added_up_by_sink() -> None:
    tally = Tally({})
    tally.note_delivery({"a": 1, "b": 0}, malformed=2)
    tally.note_delivery({"a": 4}, malformed=0)
    progress = tally.progress("running")
    assert (progress.rows_out, progress.malformed, progress.batches) == ({"a": 5, "b": 0}, 2, 2)


def test_the_cause_is_the_innermost_error_of_python() -> None:
    text = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted. SQLSTATE: XXKST\n"
        "Traceback (most recent call last):\n"
        '  File "reader.py", line 3, in latestOffset\n'
        "millstream.model.errors.Unreachable: 127.0.0.1:9876 cannot be reached: refused.\n"
        "\tat org.apache.spark.X.y(X.scala:1)\n"
        "Caused by: org.apache.spark.SparkException: wrapped\n"
    )
    assert first_cause(RuntimeError(text)) == "Unreachable: 127.0.0.1:9876 cannot be reached: refused."


def test_the_cause_is_java_s_where_python_has_none_and_always_one_line() -> None:
    java = "boom\nCaused by: java.io.IOException: No space left on device\n\tat java.base/x"
    assert first_cause(RuntimeError(java)) == "IOException: No space left on device"
    assert first_cause(RuntimeError("\n  just this \n and that")) == "just this"
    assert first_cause(KeyError()) == "KeyError"
    assert "cannot be reached" in first_cause(Unreachable("h:1 cannot be reached."))
    assert len(first_cause(RuntimeError("x" * 10_000))) < 600


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0 s", 0), ("10 s", 10_000), ("500ms", 500), ("1 min", 60_000), ("2 h", 7_200_000), ("250", 250)],
)
def test_durations_are_read_as_flink_writes_them(text: str, milliseconds: int) -> None:
    assert JobSettings.of({"execution.checkpointing.interval": text}, "n").interval_ms == milliseconds


@pytest.mark.parametrize("text", ["soon", "1 fortnight", "-1 s", ""])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(JobError, match="is no duration"):
        JobSettings.of({"execution.checkpointing.interval": text}, "n")


def test_a_table_s_options_come_before_the_job_s_settings() -> None:
    job = JobSettings.of({"millstream.nameserver": "job:1"}, "runner:1")
    plain = SourceSettings.of(Table("t", (), {"topic": "orders"}), job)
    assert (plain.nameserver, plain.max_rows) == ("job:1", DEFAULT_MAX_ROWS)
    assert (plain.startup, plain.dead_letter_topic) == ("earliest-offset", "orders_dead_letter")
    options = {
        "topic": "orders",
        "nameserver": "table:1",
        "scan.max-rows-per-trigger": "7",
        "json.ignore-parse-errors": "true",
        "scan.read-from": "Replica",
        "scan.cold": "Broker",
    }
    own = SourceSettings.of(Table("t", (), options), job)
    assert (plain.read_from, own.read_from) == ("master", "replica")
    assert (plain.cold, own.cold) == ("direct", "broker")
    assert (own.nameserver, own.max_rows, own.dead_letter_topic) == ("table:1", 7, None)


def test_cold_rows_that_went_through_the_broker_are_counted_and_their_first_cause_is_said_once() -> None:
    tally = Tally({})
    for rows, cause in ((0, ""), (5, "Cold messages of t are read through the broker: no access."), (7, "Another.")):
        tally.note_detours("t", rows, cause)
    progress = tally.progress("running")
    assert progress.cold_by_broker == {"t": 12}
    assert progress.notices == ("Cold messages of t are read through the broker: no access.",)
