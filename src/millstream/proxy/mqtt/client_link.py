"""The interface of a client's connection to its session."""

from __future__ import annotations

import logging
from typing import Protocol

from millstream.model.message import Address
from millstream.protocol.mqtt.packets import Packet
from millstream.protocol.mqtt.reason_codes import ReasonCode
from millstream.proxy.mqtt.application_message import ApplicationMessage

__all__ = ["ClientLink"]


class ClientLink(Protocol):
    """The connection, as `MqttConnection` is one; see there."""

    peer: Address
    will_is_due: bool

    @property
    def was_cut(self) -> bool: ...

    @property
    def is_stuffed(self) -> bool: ...

    @property
    def is_let_in(self) -> bool: ...

    def send(self, packet: Packet) -> None: ...

    def send_message(
        self,
        message: ApplicationMessage,
        qos: int,
        packet_id: int,
        *,
        retain: bool,
        dup: bool = False,
        subscription_ids: tuple[int, ...] = (),
    ) -> bool: ...

    def wake(self) -> None: ...

    def refuse(self, reason: ReasonCode, words: str, *, level: int = logging.INFO) -> None: ...
