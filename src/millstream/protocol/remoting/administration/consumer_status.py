"""Where consumers say they are: what one answers (code 221), and what the broker makes of several answers (code 223).

`{"messageQueueTable":{queue:offset}}` and `{"consumerTable":{client id:{queue:offset}}}`; queues are keys of tables as
fastjson writes them. Source of the names: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from millstream.model.errors import MessageRefused
from millstream.protocol.remoting.administration.consumption import queue_key
from millstream.protocol.remoting.fastjson import read_fastjson, write_object_keys

__all__ = ["ClientOffsets", "decode_consumer_status", "encode_consumers_status"]

ClientOffsets = dict[tuple[str, str, int], int]
"""Offsets by topic, broker and queue."""


def decode_consumer_status(body: bytes) -> ClientOffsets:
    """The offsets of one consumer's answer. MESSAGE_MALFORMED."""
    try:
        table = read_fastjson(body).get("messageQueueTable") or {}
        found = [(dict(queue), int(offset)) for queue, offset in table.items()]
        return {(str(key["topic"]), str(key["brokerName"]), int(key["queueId"])): offset for key, offset in found}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"A consumer's offsets cannot be read: {error}.") from None


def encode_consumers_status(consumers: Mapping[str, ClientOffsets]) -> bytes:
    """The body that tells the offsets of several consumers by client id."""
    tables = [msgspec.json.encode(client_id) + b":" + _table(offsets) for client_id, offsets in consumers.items()]
    return b'{"consumerTable":{' + b",".join(tables) + b"}}"


def _table(offsets: ClientOffsets) -> bytes:
    rows = offsets.items()
    return write_object_keys((queue_key(broker, topic, queue), offset) for (topic, broker, queue), offset in rows)
