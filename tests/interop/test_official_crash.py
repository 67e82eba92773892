"""Nothing that was acknowledged to an official producer is lost when the server is killed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from composition import as_a_program
from official import drain, message, producer, simple_consumer

pytestmark = [pytest.mark.official, pytest.mark.kill]


def test_messages_acknowledged_before_a_kill_are_received_after_the_restart(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    with as_a_program(tmp_path) as running:
        running.create_topic("orders", "NORMAL")
        port = running.port
        assert running.kill is not None
        with producer(port, "orders") as sender:

            def send_until_it_fails() -> None:
                for number in range(100_000):
                    try:
                        acknowledged.append(sender.send(message("orders", b"%d" % number)).message_id)
                    except Exception:  # noqa: BLE001 - whatever the client raises when its server is gone ends the run
                        return

            sending = threading.Thread(target=send_until_it_fails)
            sending.start()
            while len(acknowledged) < 300:
                time.sleep(0.01)
            running.kill()
            sending.join(30)
            assert not sending.is_alive()
    assert len(acknowledged) >= 300
    with as_a_program(tmp_path, port) as again, simple_consumer(again.port, "after", "orders", await_s=1) as consumer:
        received = {one.message_id for one in drain(consumer, len(acknowledged))}
    assert set(acknowledged) <= received


def test_what_was_consumed_before_a_kill_is_not_received_again(tmp_path: Path) -> None:
    with as_a_program(tmp_path) as running:
        running.create_topic("orders", "NORMAL")
        port = running.port
        assert running.kill is not None
        with producer(port, "orders") as sender, simple_consumer(port, "group", "orders") as consumer:
            for number in range(10):
                sender.send(message("orders", b"%d" % number))
            assert len(drain(consumer, 10)) == 10
            # The position of a group is on disk after a second at most.
            time.sleep(1.5)
            running.kill()
    with as_a_program(tmp_path, port) as again, simple_consumer(again.port, "group", "orders", await_s=1) as consumer:
        assert consumer.receive(32, 10) == []
