"""The measurement of many MQTT sessions at several proxies, with few of them."""

from __future__ import annotations

from typing import Any, cast

import pytest
from benchmarks.mqtt_sessions import measure_mqtt_sessions

from benchmarks import mqtt_sessions

pytestmark = pytest.mark.process


def test_sessions_of_a_killed_proxy_go_on_at_others_and_no_message_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SETTLE_S", "_IDLE_S"):
        monkeypatch.setattr(mqtt_sessions, name, 0.5)
    found = cast("dict[str, dict[str, Any]]", measure_mqtt_sessions(sessions=30, proxies=3, loads=2, messages=20))
    assert (found["messages"]["sent"], found["messages"]["arrived"]) == (20, 20)
    killed = found["killed_proxy"]
    assert [killed[name] for name in ("clients", "lost", "back", "back_with_session")] == [10] * 4
    assert (killed["messages_sent"], killed["messages_lost"], killed["refused"]) == (20, 0, 0)
