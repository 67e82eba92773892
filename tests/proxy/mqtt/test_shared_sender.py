"""Messages of QoS 2 of shared subscriptions on their way to a session that ends with its connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from millstream.model.errors import Unreachable
from millstream.proxy.mqtt.shared_deliveries import SharedSender


class Reader:
    """Acknowledges all but one message."""

    async def acknowledge_first(self, taken: Any) -> None:
        if taken.handle.queue_offset == 1:
            raise Unreachable("the broker is away")


async def test_a_message_that_cannot_be_acknowledged_first_keeps_back_no_other() -> None:
    dropped: list[int] = []
    sent: list[int] = []
    sender = SharedSender(None, dropped.append)
    for number in range(3):
        handle = SimpleNamespace(broker_name="b", queue_offset=number, encode=lambda: "")
        taken: Any = SimpleNamespace(handle=handle, reader=Reader())
        sender.take(number + 10, "$share/g/a", taken, lambda number=number: sent.append(number))  # type: ignore[misc]
    await sender.settle()
    assert sent == [0, 2]
    assert dropped == [11]
