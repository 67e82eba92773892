"""What a WebSocket's client has and has not settled."""

from __future__ import annotations

from millstream.model.handles import ReceiptHandle
from millstream.proxy.http.in_flight import InFlight


def handle(number: int, invisible_ms: int = 60_000) -> ReceiptHandle:
    return ReceiptHandle(0, 1_700_000_000_000, invisible_ms, 0, 0, "broker-a", 0, number, number)


def test_there_is_room_again_when_a_delivery_is_settled_or_its_time_is_over() -> None:
    held = InFlight(2)
    held.add(handle(1), 0.0)
    held.add(handle(2, 10_000), 0.0)
    assert held.room(9.9) == 0
    assert held.next_end_s() == 10.0
    assert held.room(10.0) == 1
    assert held.remove(handle(1).encode())
    assert not held.remove(handle(1).encode())
    assert held.room(10.0) == 2


def test_what_is_left_behind_is_what_is_neither_settled_nor_over() -> None:
    held = InFlight(10)
    held.add(handle(1), 0.0)
    held.add(handle(2, 10_000), 0.0)
    held.add(handle(3), 0.0)
    held.remove(handle(3).encode())
    assert held.take_all(20.0) == [handle(1)]
    assert held.take_all(20.0) == []
