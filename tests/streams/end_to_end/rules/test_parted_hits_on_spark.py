"""Hits through a topic between two queries: the same alerts as in one query, also where micro-batches are repeated."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import msgspec
import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from millstream.client.blocking import BlockingClient
from millstream.model.errors import ConnectionFailed
from millstream.streams.connectors.rules import packed_sink as packed
from millstream.streams.connectors.rules.packed_sink import PackedSink
from millstream.streams.rule_formats.alert_script import AlertScript
from millstream.streams.rules.conditions import Op, Predicate
from millstream.streams.rules.rule import Measure, MeasureKind, Rule, RuleStatistics
from millstream.streams.rules.store import RuleStore
from millstream.streams.spark.sinks.sink import Written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

Filled = Callable[..., AbstractContextManager[Topic]]
EVENTS = 120
QUEUES = 2


def events() -> list[tuple[int, bytes]]:
    """One a second, of five users and three kinds."""
    return [
        (number % QUEUES, json.dumps({"kind": "abc"[number % 3], "user": f"u{number % 5}", "n": number % 7,
                                      "ts": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"}).encode())
        for number in range(EVENTS)
    ]  # fmt: skip


def of_kind(kind: str, statistics: RuleStatistics | None = None, *, name: str = "", alerts: bool = True) -> Rule:
    return Rule(name or kind, f"Title of {name or kind}", Predicate("kind", Op.IN, (kind,)), statistics=statistics,
                alerts=alerts)  # fmt: skip


def counts(
    kind: MeasureKind, of: str = "", *, seconds: int = 30, least: int = 1, parts: tuple[str, ...] = ()
) -> RuleStatistics:
    return RuleStatistics(Measure(kind, of), seconds * 1000, ("user",), least, parts)


RULES = (
    of_kind("a"),
    of_kind("b", alerts=False),
    of_kind("c", alerts=False),
    of_kind("a", counts(MeasureKind.EVENTS, least=2), name="many"),
    Rule("then", "Then", Predicate("kind", Op.IN, ()),
         statistics=counts(MeasureKind.SEQUENCE, seconds=20, least=2, parts=("b", "c"))),
    of_kind("a", RuleStatistics(Measure(MeasureKind.SUM, "n"), 30_000, ("user",), None, above=4, other_than=7), name="sum"),
)  # fmt: skip


def told_of_sums() -> list[tuple[str, float, str]]:
    """What the rule of sums must tell: group, number and bounds, by plain Python."""
    windows: dict[tuple[int, str], int] = {}
    for number in range(0, EVENTS, 3):
        key = number // 30, f'["u{number % 5}"]'
        windows[key] = windows.get(key, 0) + number % 7
    told = ((group, float(total), "above 4 and other than 7") for (_, group), total in windows.items())
    return sorted(one for one in told if one[1] > 4 and one[1] != 7)


def script(topic: Topic, **more: str) -> str:
    store = RuleStore(topic.directory / "rules")
    store.publish(lambda before: msgspec.structs.replace(before, rules=RULES))
    source = {"topic": "t", "store": str(store.directory), "event-time.field": "ts", **more}
    text, uncounted = AlertScript(source, {"connector": "print"}, delay_ms=1_000).text(RULES)
    assert uncounted == []
    return text


@pytest.fixture
def every_micro_batch_twice(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each micro-batch of packed hits is sent and fails then; the next attempt does not know what is there."""
    commit, failed = PackedSink.commit, list[int]()

    def commit_and_fail(sink: PackedSink, batch_id: int, written: Sequence[Written]) -> None:
        commit(sink, batch_id, written)
        if batch_id not in failed:
            failed.append(batch_id)
            raise ConnectionFailed("UNREACHABLE", "the answer was lost")

    monkeypatch.setattr(PackedSink, "commit", commit_and_fail)
    monkeypatch.setattr(packed, "left_behind", lambda *_args: {})
    return failed


def test_rules_that_count_tell_the_same_in_a_query_of_their_own_though_all_they_read_is_there_twice(
    spark: SparkSession, topic: Filled, every_micro_batch_twice: list[int]
) -> None:
    with topic(events(), queues=QUEUES) as t:
        together = bounded_run(spark, t, script(t), name="together")
        more = {"hits.topic": "between", "scan.max-rows-per-trigger": "70"}
        apart = bounded_run(spark, t, script(t, **more), name="apart")
        with BlockingClient(t.nameserver) as client:
            records = sum(held.range.max_offset for held in client.queue_ranges("between"))
    assert {row[0] for row in together.rows["counted_alerts"]} == {"many", "then"}
    sums = [row[6:9] for row in together.rows["measured_alerts"]]
    assert sorted(sums) == told_of_sums()
    assert len(every_micro_batch_twice) > 1
    # Four queues have an end each of every attempt, and some have hits.
    assert records > 8 * len(every_micro_batch_twice)
    assert apart.sorted("counted_alerts") == together.sorted("counted_alerts")
    assert apart.sorted("measured_alerts") == together.sorted("measured_alerts")
    # What is printed is shown again where its micro-batch is repeated.
    assert set(map(repr, apart.rows["alerts"])) == set(map(repr, together.rows["alerts"]))
    assert apart.progress.rows_in == EVENTS
    assert set(apart.progress.rows_out) == {"alerts", "counted_alerts", "measured_alerts"}
    assert apart.progress.rows_between["hits_packed"] > EVENTS
    assert apart.progress.state == "ended"
