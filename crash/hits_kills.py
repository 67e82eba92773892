"""S13, kill -9 of the driver of rules that count in a query of their own: the alerts are those of a run in peace."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from crash.job_batches import topic_rows
from crash.job_lives import LIFE_LIMIT_S, Driver, ends_after_kills
from crash.programme import ProgrammeRun, scratch_directory
from crash.script_job import SCRIPT
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.rule_formats.alert_script import AlertScript
from millstream.streams.rules.conditions import Op, Predicate, any_of
from millstream.streams.rules.rule import Measure, MeasureKind, Rule, RuleStatistics
from millstream.streams.rules.store import RuleStore

__all__ = ["kill_counting_jobs"]

_EVENTS = 240
_USERS = 5
_KINDS = "abc"
_NUMBERS = 7
_WINDOW_MS = 20_000
_POLL_S = 0.01

_SOURCE = "events"
_HITS = "hits"
_ALERTS = "alerts"
_WANTED = "wanted"
"""The topic of the alerts of a run in peace, whose rules count in the query that judges."""


def _kind(kind: str) -> Predicate:
    return Predicate("kind", Op.IN, (kind,))


def _counting(name: str, kind: str, measure: Measure, least: int | None, **more: float) -> Rule:
    statistics = RuleStatistics(measure, _WINDOW_MS, ("user",), least, **more)
    return Rule(name, name, _kind(kind), statistics=statistics)


_RULES = (
    Rule("a", "a", _kind("a")),
    Rule("b", "b", _kind("b"), alerts=False),
    Rule("c", "c", _kind("c"), alerts=False),
    _counting("many", "a", Measure(MeasureKind.EVENTS), 1),
    Rule(
        "then",
        "then",
        any_of(_kind("b"), _kind("c")),
        statistics=RuleStatistics(Measure(MeasureKind.SEQUENCE), _WINDOW_MS, ("user",), 2, ("b", "c")),
    ),
)
_MORE_RULES = (
    _counting("different", "b", Measure(MeasureKind.VALUES, "n"), 1),
    _counting("sum", "c", Measure(MeasureKind.SUM, "n"), None, above=0),
)
"""Beyond CI size: each has state of its own, which takes time to start."""


def kill_counting_jobs(run: ProgrammeRun) -> None:
    """S13. One kill (CI), ten (full), a hundred (soak), a moment after new hits or new alerts came."""
    kills = run.by_size(1, 10, 100)
    rules = _RULES if run.is_small else (*_RULES, *_MORE_RULES)
    with scratch_directory() as root, ServerProcess(root / "data") as server:
        nameserver = server.addresses.nameserver
        RuleStore(root / "rules").publish(lambda before: msgspec.structs.replace(before, rules=rules))
        with BlockingClient(nameserver) as client:
            _fill(client)
            peaceful, killed = root / "peaceful", root / "killed"
            _write_script(peaceful, rules, _WANTED, {})
            _write_script(killed, rules, _ALERTS, {"hits.topic": _HITS})
            ended = ends_after_kills(run, peaceful, _command(nameserver, peaceful, _EVENTS), 0, lambda _driver: None)
            if ended and _ended(run, client, nameserver, killed, kills):
                _compare(run, client, root, rules)


def _fill(client: BlockingClient) -> None:
    for name in (_SOURCE, _HITS, _ALERTS, _WANTED):
        client.create_topic(TopicConfig(name, read_queues=2, write_queues=2))
    for number in range(_EVENTS):
        event = {
            "kind": _KINDS[number % len(_KINDS)],
            "user": f"u{number % _USERS}",
            "n": number % _NUMBERS,
            "ts": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
        }
        client.send(Message(_SOURCE, json.dumps(event).encode()))


def _write_script(directory: Path, rules: Sequence[Rule], alerts: str, more: dict[str, str]) -> None:
    source = {"topic": _SOURCE, "store": str(directory.parent / "rules"), "event-time.field": "ts", **more}
    sink = {"connector": "rocketmq", "topic": alerts}
    text, _ = AlertScript(source, sink, delay_ms=2_000).text(rules)
    directory.mkdir()
    (directory / SCRIPT).write_text(text)


def _command(nameserver: str, directory: Path, rows: int) -> list[str]:
    return [sys.executable, "-m", "crash.script_job", nameserver, str(directory), str(rows)]


def _ended(run: ProgrammeRun, client: BlockingClient, nameserver: str, directory: Path, kills: int) -> bool:
    """Lives of the job; the first ones are killed a moment after new messages came to one of the topics."""

    def moment(driver: Driver) -> None:
        _wait_for_messages(client, driver, run.random.choice((_HITS, _HITS, _ALERTS)))
        time.sleep(run.random.choice((0.0, 0.0, 0.05, 0.2, 0.6)))

    rows = max(2, _EVENTS // (kills * 2 + 4))
    return ends_after_kills(run, directory, _command(nameserver, directory, rows), kills, moment)


def _wait_for_messages(client: BlockingClient, driver: Driver, topic: str) -> None:
    before, limit_s = _messages(client, topic), time.monotonic() + LIFE_LIMIT_S
    while driver.poll() is None and _messages(client, topic) == before and time.monotonic() < limit_s:
        time.sleep(_POLL_S)


def _messages(client: BlockingClient, topic: str) -> int:
    return sum(held.range.max_offset for held in client.queue_ranges(topic))


def _compare(run: ProgrammeRun, client: BlockingClient, root: Path, rules: Sequence[Rule]) -> None:
    wanted, found = _rows(client, _WANTED), _rows(client, _ALERTS)
    run.count("records_of_hits", _messages(client, _HITS))
    run.count("alerts", sum(found.values()))
    if {rule.id for rule in rules if rule.alerts} != {json.loads(row)["rule"] for row in wanted}:
        run.fail("not every rule gave alerts, so not every one was tested", root)
    for words, rows in (("too much", found - wanted), ("missing", wanted - found)):
        if rows:
            run.fail(f"{sum(rows.values())} alerts {words}, such as {next(iter(rows))}", root)


def _rows(client: BlockingClient, topic: str) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for _, row in topic_rows(client, topic))
