"""The measurement of a start over many MQTT sessions, with few of them."""

from __future__ import annotations

import pytest
from benchmarks.mqtt_restart import measure_mqtt_restart

pytestmark = pytest.mark.process


def test_sessions_and_retained_messages_are_there_again_after_each_start() -> None:
    found = measure_mqtt_restart(sessions=30, retained=20, waiting=True)
    starts = [name for name in found if name.endswith("_session_s")]
    assert starts == ["after_kill_session_s", "after_stop_session_s", "after_kill_again_session_s"]
    assert all(found[name] > 0 for name in starts)
