"""A server that stops in good order and starts again on its port: its clients come back by themselves."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from composition import as_a_program
from official import Collector, message, producer, push_consumer

pytestmark = [pytest.mark.official, pytest.mark.kill]

GIVE_UP_S = 60


class Sending:
    """Sends numbered bodies one after the other until `stop`; what fails is left out, what is acknowledged is kept."""

    def __init__(self, sender: Any) -> None:
        self.acknowledged: list[bytes] = []
        self.failures = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(sender,))
        self._thread.start()

    def _run(self, sender: Any) -> None:
        number = 0
        while not self._stopped.is_set():
            number += 1
            body = b"%d" % number
            try:
                sender.send(message("orders", body))
            except Exception:  # noqa: BLE001 - whatever the client raises while its server is away
                self.failures += 1
                time.sleep(0.2)
            else:
                self.acknowledged.append(body)
                time.sleep(0.01)

    def wait_for_more(self, amount: int) -> None:
        wanted, give_up_s = len(self.acknowledged) + amount, time.monotonic() + GIVE_UP_S
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < give_up_s, f"{len(self.acknowledged)} sent, {self.failures} failed"
            time.sleep(0.05)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(GIVE_UP_S)
        assert not self._thread.is_alive()


def test_clients_go_on_over_a_restart_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    listener = Collector()
    first = as_a_program(tmp_path)
    running = first.__enter__()
    running.create_topic("orders", "NORMAL")
    with producer(running.port, "orders") as sender, push_consumer(running.port, "group", "orders", listener):
        sending = Sending(sender)
        sending.wait_for_more(50)
        listener.wait_for(20)
        first.__exit__(None, None, None)
        with as_a_program(tmp_path, running.port):
            sending.wait_for_more(50)
            sending.stop()
            give_up_s = time.monotonic() + GIVE_UP_S
            while not set(sending.acknowledged) <= set(listener.bodies) and time.monotonic() < give_up_s:
                time.sleep(0.1)
            lost = set(sending.acknowledged) - set(listener.bodies)
            assert not lost, f"{len(lost)} of {len(sending.acknowledged)} did not come"
            again = [body for body, attempt, _ in listener.seen if attempt > 1]
            assert len(again) <= 32, "at most what was on its way at the stop comes again"
