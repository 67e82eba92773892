"""Bodies about consumption: group progress, results of a reset, members and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from millstream.model.errors import MessageRefused
from millstream.model.operations import QueueProgress, QueueReset
from millstream.protocol.remoting.bodies import CamelBody, SubscriptionData
from millstream.protocol.remoting.java_formats import read_fastjson, write_object_keys

__all__ = [
    "BrokerProgress",
    "ClientOffsets",
    "ConnectionData",
    "ConsumerConnection",
    "GroupList",
    "ProducerConnection",
    "ProducerInfo",
    "ProducerTable",
    "decode_consume_statistics",
    "decode_consumer_status",
    "encode_consume_statistics",
    "encode_consumers_status",
    "encode_offset_table",
    "encode_reset_list",
    "encode_reset_offsets",
    "queue_key",
]


class GroupList(CamelBody):
    """Names of groups."""

    group_list: list[str] = msgspec.field(default_factory=list)


class ConnectionData(CamelBody):
    """One member of a group. `protocol` is our own field."""

    client_id: str
    client_addr: str = ""
    language: str = "OTHER"
    version: int = 0
    protocol: str = "remoting"


class ConsumerConnection(CamelBody):
    """The members of a group and what they want, as the last of them said."""

    connection_set: list[ConnectionData] = msgspec.field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(CamelBody):
    """The producers of a group."""

    connection_set: list[ConnectionData] = msgspec.field(default_factory=list)


class ProducerInfo(CamelBody):
    """One producer, as the list of all of them tells it."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str
    version: int
    last_update_timestamp: int
    """When its last heartbeat came, ms since 1970."""


class ProducerTable(CamelBody):
    """The producers of all groups."""

    data: dict[str, list[ProducerInfo]] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerProgress:
    """How far a group is in one queue of one broker."""

    broker_name: str
    progress: QueueProgress


def encode_consume_statistics(broker_name: str, queues: Iterable[QueueProgress], *, per_second: float = 0.0) -> bytes:
    """The body that answers code 208; `per_second` are the messages that the group got lately."""
    table = write_object_keys((queue_key(broker_name, item.topic, item.queue_id), _statistics(item)) for item in queues)
    return b'{"consumeTps":%a,"offsetTable":' % round(per_second, 3) + table + b"}"


def decode_consume_statistics(body: bytes) -> list[BrokerProgress]:
    """The queues of such a body by topic, broker and queue; MESSAGE_MALFORMED where it cannot be read."""
    try:
        table = read_fastjson(body)["offsetTable"]
        found = [_progress(dict(key), value) for key, value in table.items()]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"A table of offsets cannot be read: {error}.") from None
    return sorted(found, key=lambda item: (item.progress.topic, item.broker_name, item.progress.queue_id))


def encode_reset_offsets(broker_name: str, topic: str, resets: Iterable[QueueReset]) -> bytes:
    """The body that answers code 222: where each queue that was moved is now."""
    pairs = ((queue_key(broker_name, topic, item.queue_id), item.after) for item in resets)
    return b'{"offsetTable":' + write_object_keys(pairs) + b"}"


def encode_reset_list(broker_name: str, topic: str, resets: Iterable[QueueReset]) -> bytes:
    """The same for consumers in C++, which read a list."""
    found = [{**queue_key(broker_name, topic, item.queue_id), "offset": item.after} for item in resets]
    return msgspec.json.encode({"offsetTable": found})


def encode_offset_table(positions: Iterable[tuple[str, str, int, int]], now_ms: int) -> bytes:
    """The body that answers code 43, of groups, topics, queues and committed offsets."""
    table: dict[str, dict[int, int]] = {}
    for group, topic, queue_id, committed in positions:
        table.setdefault(f"{topic}@{group}", {})[queue_id] = committed
    version = {"counter": 0, "stateVersion": 0, "timestamp": now_ms}
    return msgspec.json.encode({"dataVersion": version, "offsetTable": table})


def queue_key(broker_name: str, topic: str, queue_id: int) -> dict[str, Any]:
    """A queue as the key of a table."""
    return {"brokerName": broker_name, "queueId": queue_id, "topic": topic}


def _statistics(item: QueueProgress) -> dict[str, int]:
    own = {} if item.ready_bytes is None else {"readyBytes": item.ready_bytes}
    return {
        "brokerOffset": item.max_offset,
        "consumerOffset": item.committed,
        "pullOffset": item.next_offset,
        "lastTimestamp": item.consumed_ms,
        "minOffset": item.min_offset,
        "ready": item.ready,
        "inFlight": item.in_flight,
        "oldestTimestamp": item.oldest_ms,
        **own,
    }


def _progress(queue: Mapping[str, Any], held: Mapping[str, Any]) -> BrokerProgress:
    end, committed = int(held["brokerOffset"]), int(held["consumerOffset"])
    next_offset = max(int(held.get("pullOffset", committed)), committed)
    progress = QueueProgress(
        topic=str(queue["topic"]),
        queue_id=int(queue["queueId"]),
        min_offset=int(held.get("minOffset", 0)),
        max_offset=end,
        committed=committed,
        next_offset=next_offset,
        ready=int(held.get("ready", max(end - next_offset, 0))),
        in_flight=int(held.get("inFlight", next_offset - committed)),
        oldest_ms=int(held.get("oldestTimestamp", 0)),
        consumed_ms=int(held.get("lastTimestamp", 0)),
        ready_bytes=int(held["readyBytes"]) if "readyBytes" in held else None,
    )
    return BrokerProgress(str(queue["brokerName"]), progress)


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
