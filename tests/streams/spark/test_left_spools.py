"""Spool files that a killed job of an earlier version left beside its checkpoint do not hinder the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.connectors.rules.guard import RuleGuard
from millstream.streams.jobs.failed_calls import FailedCalls
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.side_outputs import LateOutput
from millstream.streams.plan.tables import Table
from millstream.streams.rules.store import RuleStore
from millstream.streams.spark.functions.user_calls import call_spool
from millstream.streams.spark.operators.operator_reports import (
    EventTimes,
    ends_by_operator,
    event_times_of,
    open_ends_spool,
    times_spool,
)
from millstream.streams.spark.rules.task_report import Judged, TaskReport, report_spool
from millstream.streams.spark.source.dead_letters import DeadLetters, Refusals, malformed_spool

LEFT = {
    "0-0-0-0-0.calls": b"\x91\x84\xa5stage\xa30-0\xa4call\x85\xa8function\xa3m.f\xa9arguments\xa11\xa6reason\xa3why"
    b"\xa5trace\xa5trace\xa5given\xc4\x00\xa3row\xc4\x02{}\xa4ends\xc2",
    "0-rank-0-0.late": b"\x80\x05\x95y\x00\x00\x00\x00\x00\x00\x00\x8c,millstream.streams.spark.operators.late_rows\x94"
    b"\x8c\x08LateRows\x94\x93\x94)\x81\x94]\x94(\x8c\x060-rank\x94]\x94K\x00K\x01\x8c\x07decimal\x94\x8c\x07Decimal"
    b"\x94\x93\x94\x8c\x031.5\x94\x85\x94R\x94\x86\x94\x86\x94aeb.",
    "0-rank-0.open": b"\x92\x01\x05",
    "0-rank.times": b"\x83\xacwatermark_us\x07\xa6queues\x81\x00\x81\xa1a\x08\xa7untimed\x80",
    "broker-a_0-0-2-0.malformed": b"\x91\x84\xa5queue\xaabroker-a/0\xacqueue_offset\x01\xa6reason\xa7no JSON"
    b"\xa4body\xc4\x01x",
    "work/broker-a_0-0-2.work": b'{"version":1,"events":2,"hits":{"one":1}}',
}
"""The files as they were before spools had one encoding: msgpack of lists, pickle and JSON."""


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A directory with all of them, also unfinished."""
    for name, content in LEFT.items():
        path = tmp_path / "left" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.with_name(f".{path.name}.4711").write_bytes(content[:5])
    return tmp_path / "left"


def test_no_spool_takes_what_an_earlier_version_left(left: Path) -> None:
    settings = JobSettings.of({}, "127.0.0.1:1")
    assert FailedCalls(call_spool(str(left)), {}, settings).deliver() == {}
    assert LateOutput(left, {}, settings).deliver() == {}
    assert DeadLetters(malformed_spool(left), "t", "letters", "127.0.0.1:1", 0.0).deliver() == Refusals()
    assert event_times_of(times_spool(left).take(), {0: "t"}) == EventTimes()
    assert ends_by_operator(open_ends_spool(left).take()) == {}
    assert [path.name for path in left.glob("[!.]*.*")] == []


def test_rules_count_the_replayed_micro_batch_alone(left: Path, tmp_path: Path) -> None:
    RuleStore(tmp_path / "store")
    guard = RuleGuard(Judged(str(tmp_path / "store"), str(left)), Table("hits", (), {}), "j")
    spool = report_spool(left)
    # Cut in another way than before: the names are not those of the files that were left.
    spool.put("broker-a/0-0-1", [TaskReport(1, 1, {"one": 9})])
    guard.resume()
    assert list((left / "work").iterdir()) == []
    spool.put("broker-a/0-0-1", [TaskReport(1, 1, {"one": 1})])
    assert guard.take_delivered_hits() == {"one": 1}
