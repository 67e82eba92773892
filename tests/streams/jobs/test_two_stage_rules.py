"""Outputs over hits: which become a query of their own, what it is sent, and when it starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.errors import JobError
from millstream.streams.jobs.awaited_start import DependentPipeline
from millstream.streams.jobs.outputs import Output, outputs_of
from millstream.streams.jobs.progress import JobProgress
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.jobs.two_stage_rules import PartedHits, part_hits
from millstream.streams.plan.nodes import Filter, JobPlan, Project, Scan, scans_of
from millstream.streams.rules.packed.packer import OFFSET, QUEUE
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_node

LIMIT_S = 60.0
TABLES = """
CREATE TABLE hits (rule STRING, group_key STRING, measured STRING, event STRING, event_time TIMESTAMP_LTZ(3),
  measure STRING, window_ms BIGINT, hits BIGINT, late AS event_time + INTERVAL '1' SECOND,
  WATERMARK FOR event_time AS event_time - INTERVAL '1' SECOND
) WITH ('connector' = 'rules', 'topic' = 'events', 'store' = 'rules', 'scan.startup.mode' = 'latest-offset'{more});
CREATE TABLE out (rule STRING, n BIGINT) WITH ('connector' = 'blackhole');
CREATE TABLE texts (event STRING) WITH ('connector' = 'blackhole');
"""
BETWEEN = ", 'hits.topic' = 'between'"
PLAIN = "INSERT INTO texts SELECT event FROM hits WHERE measure IS NULL;"
COUNTED = """INSERT INTO out SELECT rule, {what}
  FROM TABLE(TUMBLE(TABLE hits, DESCRIPTOR(event_time), INTERVAL '10' SECOND)) {where}
  GROUP BY rule, window_start, window_end;"""


def parted(*inserts: str, more: str = BETWEEN, settings: str = "") -> tuple[list[Output], PartedHits | None]:
    script = f"{settings} {TABLES.format(more=more)} EXECUTE STATEMENT SET BEGIN {' '.join(inserts)} END;"
    plan = SqlSession(nameserver="n:1").compile(script)[-1]
    assert isinstance(plan, JobPlan)
    given = JobSettings.of(plan.settings, "n:1")
    outputs = outputs_of(plan, given, None)
    return outputs, part_hits(outputs, given)


def counted(what: str = "COUNT(*)", where: str = "") -> str:
    return COUNTED.format(what=what, where=where)


def packed_columns(found: PartedHits) -> tuple[str, ...]:
    node = found.judging[-1].node
    assert isinstance(node, Project)
    return node.schema.names


def test_without_a_topic_between_without_state_and_in_batch_mode_all_is_one_query() -> None:
    assert parted(PLAIN, counted(), more="")[1] is None
    assert parted(PLAIN)[1] is None
    assert parted(PLAIN, counted(), settings="SET 'execution.runtime-mode' = 'batch';")[1] is None


def test_hits_that_would_go_where_their_events_come_from_are_refused() -> None:
    with pytest.raises(JobError, match="would go to 'events', where its events come from"):
        parted(counted(), more=", 'hits.topic' = 'events'")


def test_outputs_without_state_stay_with_the_judging_and_the_others_go_behind() -> None:
    outputs, found = parted(PLAIN, counted(), PLAIN.replace("IS NULL", "= 'x'"))
    assert found is not None
    assert [output.sink.name for output in found.judging] == ["texts", "texts", "hits_packed"]
    assert found.counting == [outputs[1]]
    tables = {scan.table.name: scan.table for output in found.judging for scan in scans_of(output.node)}
    assert list(tables) == ["hits"]


def test_what_is_sent_is_what_somebody_reads_and_what_packing_needs() -> None:
    _, found = parted(counted("COUNT(DISTINCT measured)"))
    assert found is not None
    assert set(packed_columns(found)) == {"rule", "group_key", "measured", "event_time", QUEUE, OFFSET}
    _, found = parted(counted("SUM(hits)"))
    assert found is not None
    assert {"hits", "measure", "window_ms"} <= set(packed_columns(found))
    _, found = parted(counted("COUNT(DISTINCT event)"))
    assert found is not None
    assert "event" in packed_columns(found)


def test_only_hits_that_somebody_wants_are_sent() -> None:
    _, found = parted(counted(where="WHERE measure = 'a' AND window_ms = 1"), counted(where="WHERE measure = 'b'"))
    assert found is not None
    (condition,) = (line.strip() for line in explain_node(found.judging[-1].node) if "Filter" in line)
    assert condition == "Filter OR(AND(=(measure, 'a'), =(window_ms, 1)), =(measure, 'b'))"
    _, found = parted(counted(where="WHERE measure = 'a'"), counted())
    assert found is not None
    assert not isinstance(found.judging[-1].node.input, Filter)  # type: ignore[union-attr]


def test_the_query_behind_reads_all_that_the_judging_job_has_packed_and_nothing_else() -> None:
    _, found = parted(PLAIN, counted())
    assert found is not None
    (output,) = found.counting_of({"hits": "0123456789ab"})
    (scan,) = scans_of(output.node)
    assert isinstance(scan, Scan)
    assert scan.table.name == "hits_packed"
    assert scan.table.connector == "packed-hits"
    assert (scan.table.options["topic"], scan.table.options["origin"]) == ("between", "0123456789ab")
    assert "scan.startup.mode" not in scan.table.options
    assert scan.table.watermark == found.tables[0].watermark


@dataclass
class Running:
    """A pipeline that ends when it is told to."""

    error: JobError | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def progress(self) -> JobProgress:
        return JobProgress(rows_in=7, rows_out={"out": 3})

    def wait(self, timeout_s: float) -> bool:
        return self.over.wait(timeout_s)

    def failure(self) -> JobError | None:
        return self.error

    def stop(self) -> None:
        self.over.set()


def following(before: list[Running], start: Callable[[], Running]) -> DependentPipeline:
    return DependentPipeline(before, start)


def test_a_query_behind_starts_when_the_others_have_ended() -> None:
    first, second = Running(), Running()
    pipeline = following([first], lambda: second)
    assert not pipeline.wait(0.0)
    assert pipeline.progress() == JobProgress()
    first.over.set()
    second.over.set()
    assert pipeline.wait(LIMIT_S)
    # Its rows were counted where they were judged.
    assert (pipeline.progress().rows_in, pipeline.progress().rows_out) == (0, {"out": 3})


def test_a_query_behind_one_that_failed_or_was_stopped_never_starts() -> None:
    failed = Running(JobError("JOB_FAILED", "no"))
    failed.over.set()
    pipeline = following([failed], Running)
    assert pipeline.wait(LIMIT_S)
    assert pipeline.progress().state == "ended"
    stopped = following([Running()], Running)
    stopped.stop()
    assert stopped.wait(LIMIT_S)
    assert stopped.progress().rows_out == {}


def test_why_a_query_behind_could_not_start_is_told() -> None:
    def refuse() -> Running:
        raise JobError("JOB_FAILED", "the topic is gone")

    ended = Running()
    ended.over.set()
    pipeline = following([ended], refuse)
    assert pipeline.wait(LIMIT_S)
    failure = pipeline.failure()
    assert failure is not None
    assert "the topic is gone" in str(failure)
    assert pipeline.progress().state == "failed"
    with pytest.raises(JobError):
        following([], refuse)
