"""A message as a client hands it to the proxy, and as the broker gets it."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.broker.admission import check_keys, check_user_properties
from millstream.model import properties
from millstream.model.errors import MessageRefused
from millstream.model.message import Address, Message, OutgoingMessage, SystemFlag
from millstream.model.topic import MessageType
from millstream.model.transaction import RECOVERY_TIME_S

__all__ = ["UNKNOWN_PEER", "Submission"]

UNKNOWN_PEER = Address("127.0.0.1", 0)
"""Stands for a client whose address the transport does not tell."""


@dataclass(frozen=True, slots=True)
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
        check_keys(self.message.keys)
        check_user_properties(self.message.user_properties)
        return OutgoingMessage(
            topic=self.message.topic,
            body=self.message.body,
            properties=self._properties(),
            message_type=self.message_type,
            system_flag=SystemFlag.COMPRESSED if self.compressed else SystemFlag.NONE,
            born_timestamp_ms=self.born_timestamp_ms,
            born_host=self.peer,
        )

    def _properties(self) -> dict[str, str]:
        message, due_ms = self.message, self.message.delivery_timestamp_ms
        reserved = {
            properties.UNIQUE_KEY: self.message_id,
            properties.TAGS: message.tag,
            properties.KEYS: " ".join(message.keys) or None,
            properties.MESSAGE_GROUP: message.message_group,
            properties.PRIORITY: None if message.priority is None else str(message.priority),
            properties.LITE_TOPIC: message.lite_topic,
            # RocketMQ's proxy takes the topic as the producer group too: gRPC producers have no group of their own.
            properties.PRODUCER_GROUP: message.topic,
            properties.TRANSACTION: "true" if self.message_type is MessageType.TRANSACTION else None,
            RECOVERY_TIME_S: None if self.recovery_ms is None else str(-(-self.recovery_ms // 1000)),
            properties.DELIVERY_TIME_MS: None if due_ms is None else str(due_ms),
            properties.BORN_HOST: self.born_host or None,
            properties.BORN_TIMESTAMP: str(self.born_timestamp_ms),
            properties.TRACE_CONTEXT: self.trace_context,
        }
        return {name: value for name, value in reserved.items() if value is not None} | message.user_properties
