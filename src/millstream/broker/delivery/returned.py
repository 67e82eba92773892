"""Messages that a consumer of the remoting protocol gave back, as they wait in the group's retry topic.

The broker copies such a message to `%RETRY%<group>` after a delay; its count of deliveries goes on, and the copy says
which topic it is of. Who pulls the retry topic gets the copies under its name and tells them apart by that property.
Who pops a topic gets those of that topic as if they lay in it. Source of names and delays: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from dataclasses import replace

from millstream.broker.delivery.delay import LEVELS_S, without_delay
from millstream.broker.delivery.half_messages import HALF_OF
from millstream.model import properties as names
from millstream.model.group import DEFAULT_BACKOFF_S, GroupConfig
from millstream.model.message import OutgoingMessage, StoredMessage, SystemFlag
from millstream.model.topic import RETRY_PREFIX
from millstream.protocol.record import offset_message_id

__all__ = ["cleaned", "is_used_up", "returned", "wait_ms"]

_FIRST_LEVEL = 3
"""The delay level after the first failure; each further one takes the next."""

_KEPT_FLAGS = SystemFlag.COMPRESSED | SystemFlag.MULTI_TAGS | SystemFlag.COMPRESSION_ZLIB
_MARKS = frozenset((HALF_OF, names.TRANSACTION))


def returned(message: StoredMessage, group: str) -> OutgoingMessage:
    """The copy of a message that its consumer gave back: one delivery more on its count."""
    first_id = offset_message_id(message.store_host, message.log_offset)
    held = {
        names.RETRY_TOPIC: message.topic,
        names.ORIGIN_MESSAGE_ID: first_id,
        **_plain(message.properties),
    }
    return OutgoingMessage(
        topic=RETRY_PREFIX + group,
        body=message.body,
        properties=held,
        queue_id=0,
        system_flag=message.system_flag & _KEPT_FLAGS,
        flag=message.flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times + 1,
    )


def cleaned(message: OutgoingMessage) -> OutgoingMessage:
    """A copy that a consumer made itself, as an ordinary message that does not wait."""
    flags = message.system_flag & _KEPT_FLAGS
    return replace(message, properties=_plain(message.properties), queue_id=0, system_flag=flags)


def _plain(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in without_delay(properties).items() if name not in _MARKS}


def is_used_up(group: GroupConfig, reconsume_times: int, max_reconsume_times: int | None) -> bool:
    """Whether a message that was delivered again so many times is not delivered any more.

    `max_reconsume_times` is the consumer's own limit; None or a negative one leaves it to the group.
    """
    limit = group.max_attempts - 1 if max_reconsume_times is None or max_reconsume_times < 0 else max_reconsume_times
    return reconsume_times >= limit


def wait_ms(group: GroupConfig, reconsume_times: int, level: int) -> int:
    """How long a message waits that was delivered again so many times before; a `level` of 0 leaves it to the group.

    A group whose backoff is as it was made has RocketMQ's for consumers that pull: 10 s, 30 s, 1 min and so on.
    """
    if level <= 0 and (group.exponential is not None or group.backoff_s != DEFAULT_BACKOFF_S):
        return group.backoff_ms(reconsume_times + 1)
    chosen = level if level > 0 else _FIRST_LEVEL + reconsume_times
    return LEVELS_S[min(chosen, len(LEVELS_S)) - 1] * 1000
