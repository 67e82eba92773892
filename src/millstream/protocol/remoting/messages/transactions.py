"""The fields of END_TRANSACTION (37) and CHECK_TRANSACTION_STATE (39).

A client names its half message by the places that the answer to its send told: `tranStateTableOffset` (queue offset)
and `commitLogOffset`. Source of the names: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import MessageRefused
from millstream.model.message import StoredMessage, SystemFlag
from millstream.model.transaction import Resolution
from millstream.protocol.record import offset_message_id
from millstream.protocol.remoting.fields import integer, text

__all__ = ["CHECKS_ID", "UNDECIDED", "TransactionEnd", "check_fields", "decode_end", "encode_end"]

CHECKS_ID: Final = "checksId"
"""A field that RocketMQ does not have: the request goes to several brokers, and what lies at its offsets must have the
id of its field transactionId or msgId as well."""

UNDECIDED: Final = {"commitOrRollback": "0"}
"""The field of a request that changes nothing; its answer says by `topic` of which one the half message is."""

_RESOLUTIONS: Final = {
    int(SystemFlag.TRANSACTION_COMMIT): Resolution.COMMIT,
    int(SystemFlag.TRANSACTION_ROLLBACK): Resolution.ROLLBACK,
    0: Resolution.UNKNOWN,
}
_IDS: Final = ("transactionId", "msgId")
_NUMBERS: Final = {resolution: number for number, resolution in _RESOLUTIONS.items()}


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """What a producer says of its transaction, whose half message lies at these offsets.

    Older clients leave the topic blank.
    """

    resolution: Resolution
    producer_group: str
    queue_offset: int
    log_offset: int
    topic: str = ""
    message_ids: frozenset[str] = frozenset()
    """One of them must be the half message's, where there are any."""


def encode_end(end: TransactionEnd, message_id: str, broker_name: str) -> dict[str, str]:
    """The fields of a request 37."""
    return {
        "producerGroup": end.producer_group,
        "tranStateTableOffset": str(end.queue_offset),
        "commitLogOffset": str(end.log_offset),
        "commitOrRollback": str(_NUMBERS[end.resolution]),
        "topic": end.topic,
        "msgId": message_id,
        "transactionId": message_id,
        "bname": broker_name,
    }


def decode_end(ext: Mapping[str, str]) -> TransactionEnd:
    """What the fields of a request 37 say. MESSAGE_MALFORMED."""
    number = integer(ext, "commitOrRollback")
    resolution = _RESOLUTIONS.get(number)
    if resolution is None:
        raise MessageRefused(
            "MESSAGE_MALFORMED",
            f"The field commitOrRollback is {number}.",
            remedy="Send 8 to commit, 12 to roll back, or 0 if it is not known yet.",
        )
    return TransactionEnd(
        resolution,
        text(ext, "producerGroup"),
        integer(ext, "tranStateTableOffset"),
        integer(ext, "commitLogOffset"),
        ext.get("topic", ""),
        frozenset(ext.get(name, "") for name in _IDS) if ext.get(CHECKS_ID) == "true" else frozenset(),
    )


def check_fields(half: StoredMessage) -> dict[str, str]:
    """The fields of a request 39 about a half message, which is shown under the topic that it was sent to."""
    return {
        "topic": half.topic,
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.log_offset),
        "msgId": half.message_id,
        "transactionId": half.message_id,
        "offsetMsgId": offset_message_id(half.store_host, half.log_offset),
    }
