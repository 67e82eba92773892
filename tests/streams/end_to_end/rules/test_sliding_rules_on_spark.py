"""Rules that count in sliding windows: each burst is told once, wherever it begins, as plain Python finds it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import msgspec
import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from millstream.streams.rule_formats.alert_script import AlertScript
from millstream.streams.rules.conditions import Op, Predicate, Truth
from millstream.streams.rules.rule import Measure, MeasureKind, Rule, RuleStatistics
from millstream.streams.rules.store import RuleStore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Filled = Callable[..., AbstractContextManager[Topic]]
Event = dict[str, object]
EVENTS = 240
QUEUES = 2
SECONDS = 10


def event(number: int) -> Event:
    """Two a second of three users, in bursts: most of the time little fails."""
    fails = number % 40 < 12 or number % 7 == 0
    return {
        "second": number // 2,
        "user": f"u{number * number // 11 % 3}",
        "kind": "failed" if fails else "logon",
        "host": f"h{number * 7 % 5}",
        "bytes": number * 13 % 17,
    }


def body(told: Event) -> bytes:
    second = told["second"]
    assert isinstance(second, int)
    return json.dumps({**told, "ts": f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"}).encode()


def of(kind: MeasureKind, field: str = "", *parts: str, **bounds: float) -> RuleStatistics:
    measure = Measure(kind, field, sliding=True)
    return RuleStatistics(measure, SECONDS * 1000, ("user",), parts=parts, **{"at_least": None, **bounds})


FAILED, LOGON = Predicate("kind", Op.IN, ("failed",)), Predicate("kind", Op.IN, ("logon",))
RULES = (
    Rule("count", "", FAILED, statistics=of(MeasureKind.EVENTS, at_least=5)),
    Rule("hosts", "", FAILED, statistics=of(MeasureKind.VALUES, "host", at_least=4)),
    Rule("sum", "", FAILED, statistics=of(MeasureKind.SUM, "bytes", above=40)),
    Rule("average", "", Truth(True), statistics=of(MeasureKind.AVERAGE, "bytes", below=6.5)),
    Rule("failed", "", FAILED, alerts=False),
    Rule("logon", "", LOGON, alerts=False),
    Rule("both", "", Truth(False), statistics=of(MeasureKind.PARTS, "", "failed", "logon", at_least=2)),
)
MEASURES: dict[str, tuple[Callable[[list[Event]], float], Callable[[float], bool], bool]] = {
    "count": (len, lambda count: count >= 5, True),
    "hosts": (lambda some: len({one["host"] for one in some}), lambda count: count >= 4, True),
    "sum": (lambda some: float(sum(map(_bytes, some))), lambda total: total > 40, True),
    "average": (lambda some: statistics.fmean(map(_bytes, some)), lambda mean: mean < 6.5, False),
    "both": (lambda some: len({one["kind"] for one in some}), lambda count: count >= 2, False),
}
"""What is measured of a window's events, whether that holds, and whether only failures are looked at."""


def _bytes(one: Event) -> int:
    assert isinstance(one["bytes"], int)
    return one["bytes"]


def expected() -> Iterator[tuple[str, str, int, float]]:
    """Rule, user, second and measure: where it holds and did not in the seconds of a window before."""
    every = [event(number) for number in range(EVENTS)]
    for rule, (measure, holds, of_failures) in MEASURES.items():
        for user in ("u0", "u1", "u2"):
            some = [one for one in every if one["user"] == user and (one["kind"] == "failed" or not of_failures)]
            held_at = -SECONDS - 1
            for second in dict.fromkeys(int(str(one["second"])) for one in some):
                value = measure([one for one in some if second - SECONDS <= int(str(one["second"])) <= second])
                if holds(value):
                    if second - held_at > SECONDS:
                        yield rule, user, second, value
                    held_at = second


@pytest.mark.parametrize("more", [{}, {"hits.topic": "between"}], ids=["together", "apart"])
def test_what_holds_for_a_while_is_told_once_when_it_begins_to(
    spark: SparkSession, topic: Filled, more: dict[str, str]
) -> None:
    with topic([(number % QUEUES, body(event(number))) for number in range(EVENTS)], queues=QUEUES) as t:
        RuleStore(t.directory / "rules").publish(lambda before: msgspec.structs.replace(before, rules=RULES))
        source = {"topic": "t", "store": str(t.directory / "rules"), "event-time.field": "ts",
                  "scan.max-rows-per-trigger": "60", **more}  # fmt: skip
        text, uncounted = AlertScript(source, {"connector": "print"}, delay_ms=1_000).text(RULES)
        assert uncounted == []
        collected = bounded_run(spark, t, text, name="sliding").rows
    told = [*collected["counted_alerts"], *collected["measured_alerts"]]
    assert {row[3] for row in told} == {f"sliding {rule.statistics.measure.kind}" for rule in RULES if rule.statistics}
    assert {(row[5] - row[4]).total_seconds() for row in told} == {SECONDS}
    found = [(row[0], json.loads(row[6])[0], row[5].minute * 60 + row[5].second, row[7]) for row in told]
    wanted = sorted(expected())
    assert {rule for rule, *_ in wanted} == set(MEASURES)
    assert sorted(one[:3] for one in found) == [one[:3] for one in wanted]
    assert [one[3] for one in sorted(found)] == pytest.approx([one[3] for one in wanted])
