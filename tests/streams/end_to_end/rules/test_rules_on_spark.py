"""Rules in a Spark job: hits as rows, rules that fail and harm no other, and changes while a job runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from millstream.client.blocking import BlockingClient
from millstream.streams.rules.conditions import Op, Predicate
from millstream.streams.rules.notes import RuleNotes
from millstream.streams.rules.rule import Measure, MeasureKind, Rule, RuleStatistics
from millstream.streams.rules.store import RuleStore

pytestmark = pytest.mark.spark

Filled = Callable[..., AbstractContextManager[Topic]]

TABLE = """
CREATE TABLE hits (
  rule STRING, title STRING, tags ARRAY<STRING>, event STRING, event_time TIMESTAMP_LTZ(3), version BIGINT,
  group_key STRING, measured STRING, at_least BIGINT, measure STRING,
  queue_offset BIGINT METADATA FROM 'queue-offset',
  WATERMARK FOR event_time AS event_time - INTERVAL '1' SECOND
) WITH ('connector' = 'rules', 'topic' = 't', 'store' = '%s', 'event-time.field' = 'ts', 'call-allowance' = '6 s');
"""
EVENTS = 40


def store_of(topic: Topic, *rules: Rule) -> RuleStore:
    store = RuleStore(topic.directory / "rules")
    store.publish(lambda before: msgspec.structs.replace(before, rules=before.rules + rules))
    return store


def table(topic: Topic) -> str:
    return TABLE % (topic.directory / "rules")


def events() -> list[tuple[int, bytes]]:
    """One a second; every fourth is bad."""
    return [
        (number % 2, json.dumps({"n": number, "what": "bad" if number % 4 == 3 else "good",
                                 "ts": f"2026-01-01 00:00:{number:02}"}).encode())
        for number in range(EVENTS)
    ]  # fmt: skip


def is_what(word: str) -> Rule:
    return Rule(f"is-{word}", word, Predicate("what", Op.IN, (word,)))


def asks(name: str) -> Rule:
    return Rule(name, name, Predicate("what", Op.CALL, (f"user_rules:{name}",)))


@pytest.fixture
def user_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "spark" / "rules"))


def test_hits_are_rows_and_what_is_no_event_is_a_dead_letter(spark: SparkSession, topic: Filled) -> None:
    with topic([*events(), (0, b"no event")], queues=2) as t:
        counts = RuleStatistics(Measure(MeasureKind.VALUES, "n"), 10_000, by=("what",), at_least=2)
        store_of(t, is_what("bad"), Rule("many", "Many", Predicate("what", Op.IN, ("good",)), statistics=counts))
        script = f"""
            CREATE TABLE plain (rule STRING, n STRING, tags ARRAY<STRING>) WITH ('connector' = 'print');
            CREATE TABLE counted (rule STRING, k STRING, n BIGINT) WITH ('connector' = 'print');
            {table(t)}
            EXECUTE STATEMENT SET BEGIN
            INSERT INTO plain SELECT rule, JSON_VALUE(event, '$.n'), tags FROM hits WHERE measure IS NULL;
            INSERT INTO counted SELECT rule, group_key, COUNT(DISTINCT measured)
              FROM TABLE(TUMBLE(TABLE hits, DESCRIPTOR(event_time), INTERVAL '10' SECOND)) WHERE measure = 'values'
              GROUP BY rule, group_key, window_start, window_end
              HAVING COUNT(DISTINCT measured) >= MAX(at_least);
            END;
        """
        collected = bounded_run(spark, t, script, name="hits")
        with BlockingClient(t.nameserver) as client:
            letters = sum(held.range.max_offset for held in client.queue_ranges("t_dead_letter"))
    assert collected.sorted("plain") == sorted((("is-bad", str(n), []) for n in range(3, EVENTS, 4)), key=repr)
    assert Counter(collected.rows["counted"]) == {("many", '["good"]', 8): 2, ("many", '["good"]', 7): 2}
    assert (collected.progress.malformed, letters) == (1, 1)
    assert collected.progress.hits == {"is-bad": 10, "many": 30}


@pytest.mark.usefixtures("user_rules")
def test_rules_that_raise_run_on_block_crash_or_leave_cost_the_others_no_row(
    spark: SparkSession, topic: Filled
) -> None:
    bad = ["refuses", "never_comes_back", "blocks", "crashes", "leaves"]
    with topic(events(), queues=2) as t:
        store = store_of(t, is_what("bad"), *map(asks, bad), is_what("good"))
        script = table(t) + "SELECT rule, JSON_VALUE(event, '$.n') FROM hits;"
        collected = bounded_run(spark, t, script, name="isolated")
        notes = RuleNotes(store.directory).read().quarantined
        enabled = [rule.id for rule in store.latest().rules if rule.enabled]
    wanted = [("is-bad" if n % 4 == 3 else "is-good", str(n)) for n in range(EVENTS)]
    assert collected.sorted("result") == sorted(wanted)
    assert enabled == ["is-bad", "is-good"]
    assert {one.rule for one in notes} == set(bad)
    evidence = {one.rule: f"{one.reason} {one.evidence}" for one in notes}
    assert "good is not for me" in evidence["refuses"]
    assert "in blocks" in evidence["blocks"]
    assert "in crashes" in evidence["crashes"]
    assert "ended its process 2 times" in evidence["leaves"]
