"""The measurements of many MQTT sessions at several proxies, with few of them."""

from __future__ import annotations

from typing import Any, cast

import pytest
from benchmarks.mqtt_reconnects import measure_mqtt_reconnects
from benchmarks.mqtt_sessions import measure_mqtt_sessions

from benchmarks import mqtt_reconnects, mqtt_sessions

pytestmark = pytest.mark.process


def test_sessions_of_a_killed_proxy_go_on_at_others_and_no_message_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SETTLE_S", "_IDLE_S"):
        monkeypatch.setattr(mqtt_sessions, name, 0.5)
    found = cast("dict[str, dict[str, Any]]", measure_mqtt_sessions(sessions=30, proxies=3, loads=2, messages=20))
    assert (found["messages"]["sent"], found["messages"]["arrived"]) == (20, 20)
    killed = found["killed_proxy"]
    assert [killed[name] for name in ("clients", "lost", "back", "back_with_session")] == [10] * 4
    assert (killed["messages_sent"], killed["messages_lost"], killed["refused"]) == (20, 0, 0)


def test_all_sessions_whose_connections_are_cut_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_reconnects, "_SETTLE_S", 0.5)
    found = measure_mqtt_reconnects(sessions=30, proxies=3, loads=2, at_once=10)
    for name in ("same_proxy", "same_proxy_again", "other_proxy"):
        cut = cast("dict[str, Any]", found[name])
        told = [cut[name] for name in ("lost", "back", "back_with_session", "open", "refused")]
        assert told == [30, 30, 30, 30, 0], name
