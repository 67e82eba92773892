"""In-flight packets of a session with QoS 1 and 2 (MQTT 5.0, sections 4.3, 4.4 and 4.9). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.reason_codes import ReasonCode

__all__ = ["MAX_PACKET_ID", "IncomingWindow", "OutgoingWindow", "SentMessage"]

MAX_PACKET_ID: Final = 0xFFFF
"""Packet identifiers run from 1 to this."""

_NONE: Final[dict[int, Any]] = {}
"""The same of all windows that nothing has come to: nothing is ever put there."""

_Item = TypeVar("_Item")


@dataclass(slots=True)
class SentMessage(Generic[_Item]):
    """A message that was sent and is not acknowledged. `item` is what its sender knows it by; None of one that was
    released before this connection. `is_released`: the receiver has it, and PUBREL was sent."""

    packet_id: int
    qos: int
    item: _Item | None
    is_released: bool = False


class OutgoingWindow(Generic[_Item]):
    """Messages that were sent to the client, in their order, at most `limit` at a time.

    Identifiers that it chooses itself run from `first_id` on.
    """

    __slots__ = ("_first_id", "_last_id", "_sent", "limit")

    def __init__(self, limit: int, first_id: int = 1) -> None:
        self.limit = limit
        self._sent: dict[int, SentMessage[_Item]] = _NONE
        self._first_id = first_id
        self._last_id = first_id - 1

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def room(self) -> int:
        """Messages that may be sent now."""
        return self.limit - len(self._sent)

    def is_free(self, packet_id: int) -> bool:
        """Whether the identifier stands for nothing."""
        return packet_id not in self._sent

    def add(self, item: _Item, qos: int, packet_id: int | None = None) -> int:
        """Note a message of QoS 1 or 2 that is sent now; its packet identifier, the next free one where none is said.

        There has to be room, and an identifier that is said has to be free.
        """
        if packet_id is None:
            packet_id = self._next_free()
        self._note(SentMessage(packet_id, qos, item))
        return packet_id

    def restore_released(self, packet_id: int) -> None:
        """Note a message of QoS 2 that the receiver got over an earlier connection: its PUBREL is sent again."""
        self._note(SentMessage(packet_id, 2, None, is_released=True))

    def complete(self, packet_id: int, qos: int) -> SentMessage[_Item] | None:
        """The message that PUBACK (`qos` 1), or PUBCOMP (2), ends; None where there is none in that state."""
        sent = self._sent.get(packet_id)
        if sent is None or sent.qos != qos or (qos == 2 and not sent.is_released):
            return None
        del self._sent[packet_id]
        return sent

    def receive(self, packet_id: int) -> SentMessage[_Item] | None:
        """The message of QoS 2 whose PUBREC came, which is released from now on; None where there is none."""
        sent = self._sent.get(packet_id)
        if sent is None or sent.qos != 2:
            return None
        sent.is_released = True
        return sent

    def abandon(self, packet_id: int) -> SentMessage[_Item] | None:
        """The message that the receiver refused: nothing more is sent of it."""
        return self._sent.pop(packet_id, None)

    def messages(self) -> list[SentMessage[_Item]]:
        """All that are not acknowledged, in the order in which they were sent."""
        return list(self._sent.values())

    def _note(self, sent: SentMessage[_Item]) -> None:
        if self._sent is _NONE:
            self._sent = {}
        self._sent[sent.packet_id] = sent

    def _next_free(self) -> int:
        packet_id = self._last_id
        while True:
            packet_id = packet_id + 1 if packet_id < MAX_PACKET_ID else self._first_id
            if packet_id not in self._sent:
                self._last_id = packet_id
                return packet_id


class IncomingWindow:
    """Messages of QoS 1 and 2 that the client sent and that are not acknowledged, at most `limit` at a time."""

    __slots__ = ("_received", "_under_way", "limit")

    def __init__(self, limit: int, received: Iterable[int] = ()) -> None:
        """`received` are the identifiers of QoS 2 that an earlier connection left."""
        self.limit = limit
        self._under_way = 0
        # A dict: an empty set takes three times as much.
        self._received: dict[int, None] = dict.fromkeys(received) or _NONE

    @property
    def received(self) -> frozenset[int]:
        """Identifiers of messages of QoS 2 that came and were not released."""
        return frozenset(self._received)

    def admit(self, packet_id: int, qos: int) -> bool:
        """Whether a PUBLISH is a new message; False of QoS 2 that came before [MQTT-4.3.3-10].

        RECEIVE_MAXIMUM_EXCEEDED where more are under way than the client may send.
        """
        if qos == 2 and packet_id in self._received:
            return False
        if self._under_way + len(self._received) >= self.limit:
            raise PacketRefused(
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                f"The client sent more than {self.limit} messages that are not acknowledged.",
            )
        if qos == 2:
            if self._received is _NONE:
                self._received = {}
            self._received[packet_id] = None
        else:
            self._under_way += 1
        return True

    def acknowledge(self) -> None:
        """A message of QoS 1 gets its PUBACK."""
        self._under_way -= 1

    def release(self, packet_id: int) -> bool:
        """The message of QoS 2 was released, or its PUBREC refuses it; whether it was there."""
        if packet_id not in self._received:
            return False
        del self._received[packet_id]
        return True
