"""Correlations of every type of Sigma, from their text to alerts: what a job tells is what plain Python finds."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import msgspec
import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from millstream.streams.rule_formats.alert_script import AlertScript
from millstream.streams.rule_formats.rule_files import read_rule_files
from millstream.streams.rules.store import RuleStore

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

Filled = Callable[..., AbstractContextManager[Topic]]
EVENTS = 240
QUEUES = 2
USERS = 3

RULE = """title: {0}
id: {0}
logsource: {{product: linux, service: sshd}}
detection:
    s: {{kind: {0}}}
    condition: s
"""
COUNTED = """title: {0}
id: {0}
correlation:
    type: {0}
    rules: [{1}]
    group-by: [user]
    timespan: 1m
    condition: {2}
"""
TEXT = "---\n".join(
    [
        RULE.format("failed"),
        RULE.format("logon"),
        COUNTED.format("event_count", "failed", "{gte: 12, lt: 16}"),
        COUNTED.format("value_count", "failed", "{field: ip, gt: 3}"),
        COUNTED.format("temporal", "failed, logon", "{eq: 2}"),
        COUNTED.format("temporal_ordered", "failed, logon", "{gte: 2}"),
        COUNTED.format("value_sum", "failed", "{field: bytes, gt: 800}"),
        COUNTED.format("value_avg", "failed", "{field: bytes, lte: 66.5}"),
        COUNTED.format("value_percentile", "failed", "{field: bytes, percentile: 90, gte: 110}"),
        COUNTED.format("value_median", "failed", "{field: bytes, neq: 60}"),
    ]
)


def is_failure(number: int) -> bool:
    return number % 60 < 40 and number // 60 != 2


def user(number: int) -> str:
    return f"u{(number * number // 7) % USERS}"


def ip(number: int) -> str:
    return f"10.0.0.{number * 7 % (3 + number // 60)}"


def size(number: int) -> int:
    return number * 37 % 127


def events() -> list[tuple[int, bytes]]:
    """One a second, half of them of another programme that says the same and is no sshd."""
    return [
        (number % QUEUES, json.dumps({"app": app, "facility": "auth", "kind": "failed" if is_failure(number) else "logon",
                                      "user": user(number), "ip": ip(number), "bytes": size(number),
                                      "ts": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"}).encode())
        for number in range(EVENTS) for app in ("sshd", "shop")
    ]  # fmt: skip


def percentile(values: Iterable[int], percent: int) -> float:
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low, high = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
    return low + (high - low) * (place - int(place))


def windows() -> set[tuple[str, str, int, float]]:
    """Rule, user, minute and measure of each window that is to be told."""
    failures: dict[tuple[int, str], list[int]] = defaultdict(list)
    logons = {(number // 60, user(number)) for number in range(EVENTS) if not is_failure(number)}
    for number in range(EVENTS):
        if is_failure(number):
            failures[number // 60, user(number)].append(number)
    told: set[tuple[str, str, int, float]] = set()
    for (minute, name), numbers in failures.items():
        sizes, addresses = [size(one) for one in numbers], {ip(one) for one in numbers}
        held = {
            "event_count": (len(numbers), 12 <= len(numbers) < 16),
            "value_count": (len(addresses), len(addresses) > 3),
            "temporal": (2, (minute, name) in logons),
            "value_sum": (sum(sizes), sum(sizes) > 800),
            "value_avg": (sum(sizes) / len(sizes), sum(sizes) / len(sizes) <= 66.5),
            "value_percentile": (percentile(sizes, 90), percentile(sizes, 90) >= 110),
            "value_median": (percentile(sizes, 50), percentile(sizes, 50) != 60),
        }
        told |= {(rule, name, minute, round(measured, 6)) for rule, (measured, holds) in held.items() if holds}
    return told


def sequences() -> set[tuple[str, int]]:
    """User and second of each logon within a minute of a failure, each pair once."""
    found: set[tuple[str, int]] = set()
    for name in {user(number) for number in range(EVENTS)}:
        steps = [number for number in range(EVENTS) if user(number) == name]
        place = 0
        while place < len(steps):
            end = next((other for other in range(place + 1, len(steps)) if not is_failure(steps[other])), None)
            if is_failure(steps[place]) and end is not None and steps[end] - steps[place] < 60:
                found.add((name, steps[end]))
                place = end
            place += 1
    return found


def test_correlations_of_every_type_tell_what_plain_python_finds(spark: SparkSession, topic: Filled) -> None:
    with topic(events(), queues=QUEUES) as t:
        (t.directory / "rules.yml").write_text(TEXT)
        read = read_rule_files([t.directory / "rules.yml"])
        assert (read.refused, len(read.rules)) == ((), 10)
        store = RuleStore(t.directory / "rules")
        store.publish(lambda before: msgspec.structs.replace(before, rules=read.rules, paths=read.paths))
        source = {"topic": "t", "store": str(t.directory / "rules"), "event-time.field": "ts"}
        text, uncounted = AlertScript(source, {"connector": "print"}, delay_ms=1_000).text(read.rules)
        assert uncounted == []
        told = bounded_run(spark, t, text, name="correlated").rows
    rows = [*told["counted_alerts"], *told["measured_alerts"]]
    found = [
        (row[0], json.loads(row[6])[0], row[4].minute, round(float(row[7]), 6))
        for row in rows
        if row[0] != "temporal_ordered"
    ]
    assert sorted(found) == sorted(windows())
    ends = [(json.loads(row[6])[0], row[5].minute * 60 + row[5].second) for row in rows if row[0] == "temporal_ordered"]
    assert sorted(ends) == sorted(sequences())
    assert len({row[0] for row in rows}) == 8
    assert not told.get("alerts")
