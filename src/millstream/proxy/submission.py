"""A message as a client hands it to the proxy, and as the broker gets it."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.broker.delivery.admission import check_keys, check_user_properties
from millstream.model import properties
from millstream.model.errors import MessageRefused
from millstream.model.message import Address, Message, OutgoingMessage, SystemFlag
from millstream.model.topic import MessageType
from millstream.model.transaction import RECOVERY_TIME_S

__all__ = ["UNKNOWN_PEER", "Submission"]

UNKNOWN_PEER = Address("127.0.0.1", 0)
"""Stands for a client whose address the transport does not tell."""


# At hand, because in Python 3.11 the way from an enum's class to a member runs in Python.
_TRANSACTION = MessageType.TRANSACTION
_COMPRESSED, _PLAIN = SystemFlag.COMPRESSED, SystemFlag.NONE


@dataclass(slots=True)
class Submission:
    """A message, the id that the client's library gave it, and what the library says about its origin.

    `born_host` is the name that the client gives itself, `peer` the address it connected from. `compressed` bodies
    are stored as they came.
    """

    message: Message
    message_id: str
    message_type: MessageType = MessageType.NORMAL
    born_timestamp_ms: int = 0
    born_host: str = ""
    peer: Address = UNKNOWN_PEER
    trace_context: str | None = None
    recovery_ms: int | None = None
    """How long after the send a transaction's producer wants to be asked for the first time."""
    compressed: bool = False

    def outgoing(self) -> OutgoingMessage:
        """The message with its reserved properties.

        Refused is only what cannot be seen any more once they are joined: a blank id, keys that would fall apart, and
        user properties with reserved names. The rest is the broker's to judge.
        """
        if not self.message_id.strip():
            raise MessageRefused("ILLEGAL_MESSAGE_ID", "The message id is blank.")
        message = self.message
        if message.keys:
            check_keys(message.keys)
        if message.user_properties or message.keys or message.tag:
            check_user_properties(message.user_properties, message.tag, message.keys)
        return OutgoingMessage(
            message.topic,
            message.body,
            self._properties(),
            self.message_type,
            None,
            _COMPRESSED if self.compressed else _PLAIN,
            0,
            self.born_timestamp_ms,
            self.peer,
        )

    def _properties(self) -> dict[str, str]:
        message = self.message
        held = {properties.UNIQUE_KEY: self.message_id}
        if message.tag is not None:
            held[properties.TAGS] = message.tag
        if message.keys:
            held[properties.KEYS] = " ".join(message.keys)
        if message.message_group is not None:
            held[properties.MESSAGE_GROUP] = message.message_group
        if message.priority is not None:
            held[properties.PRIORITY] = str(message.priority)
        if message.lite_topic is not None:
            held[properties.LITE_TOPIC] = message.lite_topic
        # RocketMQ's proxy takes the topic as the producer group too: gRPC producers have no group of their own.
        held[properties.PRODUCER_GROUP] = message.topic
        if self.message_type is _TRANSACTION:
            held[properties.TRANSACTION] = "true"
        if self.recovery_ms is not None:
            held[RECOVERY_TIME_S] = str(-(-self.recovery_ms // 1000))
        if message.delivery_timestamp_ms is not None:
            held[properties.DELIVERY_TIME_MS] = str(message.delivery_timestamp_ms)
        if self.born_host:
            held[properties.BORN_HOST] = self.born_host
        held[properties.BORN_TIMESTAMP] = str(self.born_timestamp_ms)
        if self.trace_context is not None:
            held[properties.TRACE_CONTEXT] = self.trace_context
        if message.user_properties:
            held.update(message.user_properties)
        return held
