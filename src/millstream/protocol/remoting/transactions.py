"""The fields of END_TRANSACTION (37) and CHECK_TRANSACTION_STATE (39).

A client names its half message by the places that the answer to its send told: `tranStateTableOffset` (queue offset)
and `commitLogOffset`. A proxy of ours, which never saw the send, leaves them out: topic and `transactionId`, which is
the message's id, find the transaction as well. Source of the names: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.model.message import StoredMessage, SystemFlag
from millstream.model.transaction import Resolution
from millstream.protocol.record import offset_message_id
from millstream.protocol.remoting.fields import integer, text

__all__ = ["TransactionEnd", "check_fields", "decode_end", "encode_end"]

_RESOLUTIONS: Final = {
    int(SystemFlag.TRANSACTION_COMMIT): Resolution.COMMIT,
    int(SystemFlag.TRANSACTION_ROLLBACK): Resolution.ROLLBACK,
}
_NUMBERS: Final = {resolution: number for number, resolution in _RESOLUTIONS.items()}
_UNKNOWN: Final = 0


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """What a producer says of its transaction. `place` is the queue offset and the log offset of its half message.

    Without a place `topic` and `message_id` are there; with one the topic may be blank, as of older clients.
    """

    resolution: Resolution
    producer_group: str
    place: tuple[int, int] | None
    topic: str
    message_id: str
    was_asked: bool = False


def encode_end(end: TransactionEnd, broker_name: str = "") -> dict[str, str]:
    """The fields of a request 37."""
    ext = {
        "producerGroup": end.producer_group,
        "commitOrRollback": str(_NUMBERS.get(end.resolution, _UNKNOWN)),
        "fromTransactionCheck": "true" if end.was_asked else "false",
        "topic": end.topic,
        "msgId": end.message_id,
        "transactionId": end.message_id,
        "bname": broker_name,
    }
    if end.place is not None:
        ext["tranStateTableOffset"], ext["commitLogOffset"] = map(str, end.place)
    return {name: value for name, value in ext.items() if value}


def decode_end(ext: Mapping[str, str]) -> TransactionEnd:
    """What such fields say. MESSAGE_MALFORMED; any other number than those of commit and rollback means unknown."""
    has_place = "tranStateTableOffset" in ext or "commitLogOffset" in ext
    return TransactionEnd(
        resolution=_RESOLUTIONS.get(integer(ext, "commitOrRollback"), Resolution.UNKNOWN),
        producer_group=text(ext, "producerGroup"),
        place=(integer(ext, "tranStateTableOffset"), integer(ext, "commitLogOffset")) if has_place else None,
        topic=ext.get("topic", "") if has_place else text(ext, "topic"),
        message_id=ext.get("transactionId", "") if has_place else text(ext, "transactionId"),
        was_asked=ext.get("fromTransactionCheck", "").lower() == "true",
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
