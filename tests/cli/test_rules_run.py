"""`millstream rules run` against a server and real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Ran, run

pytestmark = pytest.mark.process


Command = Callable[..., Ran]

RULES = """
- rule: shell
  title: A shell
  level: high
  shows: [Image]
  when: {Image: {ends: cmd.exe}}
- {rule: failed, alerts: false, when: {EventID: 4625}}
- {rule: came_in, alerts: false, when: {EventID: 4624}}
- {rule: burst, level: low, count: {rules: [failed], by: Ip, within: 10 min, at least: 3}}
- {rule: never, count: {rules: [failed], by: Ip, within: 10 min, at least: 4}}
- {rule: guessed, title: Guessed, sequence: {of: [failed, failed, came_in], by: Ip, within: 10 min}}
"""


def event(second: int, **fields: Any) -> str:
    return json.dumps({"ts": f"2026-01-01T00:00:{second:02}Z", **fields})


EVENTS = [
    event(1, EventID=4625, Ip="10.0.0.1"),
    event(2, EventID=4625, Ip="10.0.0.1"),
    event(3, EventID=4625, Ip="10.0.0.2"),
    event(4, EventID=4624, Ip="10.0.0.1"),
    event(5, EventID=4625, Ip="10.0.0.1"),
    event(6, EventID=4624, Ip="10.0.0.2"),
    event(7, EventID=1, Image="C:\\cmd.exe"),
    "no event",
]


@pytest.fixture
def store(tmp_path: Path) -> str:
    file = tmp_path / "mine.yml"
    file.write_text(RULES)
    assert run("rules", "import", str(file), "--store", str(tmp_path / "rules")).code == 0
    return str(tmp_path / "rules")


@pytest.mark.spark
def test_alerts_of_events_counts_and_sequences_come_to_their_topic(millstream: Command, store: str) -> None:
    millstream("topic", "create", "events", "--queues", "1")
    assert millstream("produce", "events", "-", stdin="\n".join(EVENTS)).code == 0
    options = ("--store", store, "--topic", "events", "--alerts", "alerts", "--event-time", "ts")
    done = millstream("rules", "run", *options, "--bounded", "-o", "json")
    assert done.code == 0, done.err
    progress = json.loads(done.err.splitlines()[-1])["progress"]
    assert (progress["rows_in"], progress["malformed"]) == (8, 1)
    assert progress["hits"] == {"shell": 1, "burst": 4, "never": 4, "guessed": 6}
    told = [json.loads(line) for line in millstream("consume", "alerts", "--until-end").out.splitlines()]
    alerts = {row["rule"]: row for row in told}
    assert len(told) == len(alerts)
    assert set(alerts) == {"shell", "burst", "guessed"}
    assert (alerts["shell"]["title"], alerts["shell"]["shows"]) == ("A shell", {"Image": "C:\\cmd.exe"})
    assert json.loads(alerts["shell"]["event"]) == json.loads(EVENTS[6])
    assert (alerts["burst"]["group_key"], alerts["burst"]["measured"]) == ('["10.0.0.1"]', 3)
    assert alerts["guessed"]["group_key"] == '["10.0.0.1"]'
    assert [alerts["guessed"][name][11:19] for name in ("window_start", "window_end")] == ["00:00:01", "00:00:04"]


def test_the_sql_of_the_job_is_shown_without_a_server(store: str) -> None:
    shown = run("rules", "run", "--store", store, "--topic", "events", "--explain")
    assert shown.code == 0
    assert shown.out.count("INSERT INTO counted_alerts") == 2
    assert "MATCH_RECOGNIZE" in shown.out
    shown = run("rules", "run", "--store", store, "--topic", "events", "--explain", "--no-statistics")
    assert "counted_alerts" not in shown.out
    shown = run("rules", "run", "--store", store, "--topic", "events", "--hits", "between", "--explain")
    assert "'hits.topic' = 'between'" in shown.out
    assert "SUM(hits)" in shown.out


def test_a_store_without_rules_and_a_topic_that_is_not_there_are_refused_before_spark_starts(
    millstream: Command, store: str, tmp_path: Path
) -> None:
    refused = millstream("rules", "run", "--store", str(tmp_path / "none"), "--topic", "events")
    assert refused.code == 1
    assert "MS-9001" in refused.err
    refused = millstream("rules", "run", "--store", store, "--topic", "missing")
    assert refused.code == 1
    assert "MS-2101" in refused.err
    assert "Spark" not in refused.err


def test_a_lateness_that_is_no_time_is_a_slip_of_the_command_line(store: str) -> None:
    assert run("rules", "run", "--store", store, "--topic", "events", "--lateness", "soon").code == 2


def test_hits_go_to_no_topic_that_has_another_use(store: str) -> None:
    for taken in ("events", "alerts"):
        refused = run("rules", "run", "--store", store, "--topic", "events", "--alerts", "alerts", "--hits", taken)
        assert refused.code == 2
        assert "such as events_hits" in refused.err
