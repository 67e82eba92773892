"""Rules that count alerts of rules that count: what a script tells of a stream is what plain Python finds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec
import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from millstream.streams.rule_formats.alert_script import AlertScript
from millstream.streams.rules.conditions import Op, Predicate, Truth
from millstream.streams.rules.rule import Measure, MeasureKind, Rule, RuleStatistics
from millstream.streams.rules.store import RuleStore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

Filled = Callable[..., AbstractContextManager[Topic]]
EVENTS = 180
QUEUES = 2
USERS = 4
LEAST = 3
"""Failures of a user within ten seconds that are many."""


def is_failure(number: int) -> bool:
    return number % 60 < 40


def user(number: int) -> str:
    return f"u{(number * number // 7) % USERS}"


def events() -> list[tuple[int, bytes]]:
    """One a second: failures for forty seconds, then logons for twenty, of users in no order."""
    return [
        (number % QUEUES, json.dumps({"kind": "failed" if is_failure(number) else "logon", "user": user(number),
                                      "ts": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"}).encode())
        for number in range(EVENTS)
    ]  # fmt: skip


def of(measure: MeasureKind, seconds: int, least: int, *parts: str) -> RuleStatistics:
    return RuleStatistics(Measure(measure), seconds * 1000, ("user",), least, parts)


RULES = (
    Rule(
        "failed", "", Predicate("kind", Op.IN, ("failed",)), statistics=of(MeasureKind.EVENTS, 10, LEAST), alerts=False
    ),
    Rule("logon", "", Predicate("kind", Op.IN, ("logon",)), alerts=False),
    Rule("again", "", Truth(False), statistics=of(MeasureKind.EVENTS, 60, 2, "failed")),
    Rule("both", "", Truth(False), statistics=of(MeasureKind.PARTS, 60, 2, "failed", "logon")),
    Rule("then", "", Truth(False), statistics=of(MeasureKind.SEQUENCE, 60, 2, "failed", "logon")),
)


def many() -> set[tuple[int, str]]:
    """The windows of ten seconds in which a user failed often enough."""
    failures = Counter((number // 10, user(number)) for number in range(EVENTS) if is_failure(number))
    return {window for window, count in failures.items() if count >= LEAST}


def windows() -> set[tuple[str, str, int, int]]:
    """Rule, user, minute and measure of the windows of a minute that are to be told."""
    minutes = Counter((ten // 6, name) for ten, name in many())
    logons = {(number // 60, user(number)) for number in range(EVENTS) if not is_failure(number)}
    told = {("again", name, minute, count) for (minute, name), count in minutes.items() if count >= 2}
    return told | {("both", name, minute, 2) for minute, name in minutes if (minute, name) in logons}


def sequences() -> set[tuple[str, int]]:
    """User and second of each logon within a minute of the end of a window of many failures, each once."""
    found: set[tuple[str, int]] = set()
    for name in {user(number) for number in range(EVENTS)}:
        steps = [(ten * 10 + 9.999, True) for ten, who in many() if who == name]
        steps += [(float(n), False) for n in range(EVENTS) if user(n) == name and not is_failure(n)]
        steps.sort()
        place = 0
        while place < len(steps):
            time, begins = steps[place]
            end = next((other for other in range(place + 1, len(steps)) if not steps[other][1]), None)
            if begins and end is not None and steps[end][0] - time < 60:
                found.add((name, int(steps[end][0])))
                place = end
            place += 1
    return found


@pytest.mark.parametrize("more", [{}, {"hits.topic": "between"}], ids=["together", "apart"])
def test_alerts_of_rules_that_count_are_counted_as_they_come(
    spark: SparkSession, topic: Filled, more: dict[str, str]
) -> None:
    with topic(events(), queues=QUEUES) as t:
        RuleStore(t.directory / "rules").publish(lambda before: msgspec.structs.replace(before, rules=RULES))
        source = {"topic": "t", "store": str(t.directory / "rules"), "event-time.field": "ts",
                  "scan.max-rows-per-trigger": "50", **more}  # fmt: skip
        text, uncounted = AlertScript(source, {"connector": "print"}, delay_ms=1_000).text(RULES)
        assert uncounted == []
        rows = bounded_run(spark, t, text, name="chained").rows["counted_alerts"]
    told = [(row[0], json.loads(row[6])[0], row[4].minute, row[7]) for row in rows if row[0] != "then"]
    assert sorted(told) == sorted(windows())
    ends = [(json.loads(row[6])[0], row[5].minute * 60 + row[5].second) for row in rows if row[0] == "then"]
    assert sorted(ends) == sorted(sequences())
    assert {rule for rule, *_ in rows} == {"again", "both", "then"}
