"""Rows behind the watermark: counted by operator, and kept where their table asks for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.client.blocking import BlockingClient
from millstream.streams.jobs.progress import JobProgress
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.side_outputs import LateOutput
from millstream.streams.jobs.tally import Tally
from millstream.streams.plan.aggregates import AggregateCall, WindowAggregate
from millstream.streams.plan.expressions import Column
from millstream.streams.plan.nodes import Scan
from millstream.streams.plan.tables import PhysicalColumn, Table, Watermark
from millstream.streams.plan.types import BIGINT, INT, DataType, TypeKind
from millstream.streams.plan.windows import Tumble
from millstream.streams.spark.operators.operator_reports import LateRows, late_shapes, late_spool
from millstream.streams.spark.operators.wirings import wiring_of
from servers import running_servers_in_thread

TIME = DataType(TypeKind.TIMESTAMP, precision=3)
COLUMNS = (PhysicalColumn("id", INT), PhysicalColumn("ts", TIME))


def count_of(**options: str) -> WindowAggregate:
    named = {
        "connector": "rocketmq",
        "topic": "t",
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    scan = Scan(Table("t", COLUMNS, named, Watermark("ts", 0)), ("id", "ts"))
    calls = (("n", AggregateCall("COUNT", Column("id", INT), BIGINT)),)
    return WindowAggregate(scan, Tumble("ts", 1000), (("id", Column("id", INT)),), calls)


def late_row(names: tuple[str, ...]) -> tuple[object, ...]:
    """The row 7 at the first second of 1970, in the order of the operator's columns."""
    return tuple(1_000_000 if name == "ts" else 7 for name in names)


def test_late_rows_are_counted_and_sent_with_the_reason_and_the_operator(tmp_path: Path) -> None:
    wiring = wiring_of(count_of(late_topic="late"))
    assert wiring is not None
    shapes = late_shapes(wiring)
    spool = late_spool(tmp_path / "late")
    names = shapes[0].schema.names
    spool.put("0", [LateRows.of("0-windowaggregate", [(0, late_row(names)), (0, late_row(names))])])
    spool.put("1", [LateRows.of("1-rank", [(0, late_row(names))])])
    with running_servers_in_thread(tmp_path / "data") as servers:
        settings = JobSettings.of({}, servers.nameserver)
        output = LateOutput(tmp_path / "late", {"0-windowaggregate": shapes}, settings)
        assert output.deliver() == {"0-windowaggregate": 2, "1-rank": 1}
        assert output.deliver() == {}
        with BlockingClient(servers.nameserver) as client:
            found = [
                message
                for held in client.queue_ranges("late")
                for batch in client.read(held.queue, 0, held.range.max_offset)
                for message in batch.messages()
            ]
    assert len(found) == 2
    body = json.loads(found[0].body)
    assert (body["id"], body["ts"]) == (7, "1970-01-01 00:00:01")
    told = found[0].user_properties
    assert (told["operator"], told["source_table"]) == ("0-windowaggregate", "t")
    assert "watermark" in told["reason"]


def progress_after(*steps: tuple[float, int]) -> JobProgress:
    """The progress at the last of the times (seconds); each step had so many malformed rows."""
    now = [0.0]
    tally = Tally({}, clock=lambda: now[0])
    for time_s, malformed in steps:
        now[0] = time_s
        tally.note_delivery({}, malformed, {"0-over": malformed})
    return tally.progress("running")


def test_the_progress_tells_late_rows_by_operator_and_how_many_were_malformed_of_late() -> None:
    progress = progress_after((0.0, 5), (30.0, 2), (61.0, 0))
    assert (progress.malformed, progress.malformed_last_minute) == (7, 2)
    assert (progress.late, progress.late_by) == (7, {"0-over": 7})
