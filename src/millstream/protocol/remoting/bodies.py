"""Bodies in JSON: routes, the cluster, topic statistics, heartbeats and registration.

Fields are named as on the wire, in snake case. Each type reads with defaults for what a peer leaves out and passes
over what it does not know. Source of the names: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from millstream.model.errors import MessageRefused
from millstream.model.operations import QueueRange
from millstream.protocol.remoting.java_formats import read_fastjson, write_object_keys

__all__ = [
    "BrokerData",
    "BrokerMemberGroup",
    "BrokerMemberGroupBody",
    "CamelBody",
    "CheckClientBody",
    "ClusterInfo",
    "ConsumerData",
    "ConsumerList",
    "DataVersion",
    "HeartbeatData",
    "KeyValueTable",
    "ProducerData",
    "QueueData",
    "QueueStatistics",
    "RegisterBrokerBody",
    "SubscriptionData",
    "TopicConfigData",
    "TopicConfigList",
    "TopicConfigTable",
    "TopicList",
    "TopicMappingInfo",
    "TopicRouteData",
    "decode_body",
    "decode_topic_statistics",
    "encode_body",
    "encode_topic_statistics",
]

_T = TypeVar("_T")


class CamelBody(msgspec.Struct, rename="camel"):
    """A body whose names are in camel case on the wire."""


class QueueData(CamelBody):
    """A topic's queues on one broker; `perm` as in `millstream.model.topic.Permission`."""

    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 6
    topic_sys_flag: int = 0


class BrokerData(CamelBody):
    """The addresses (`host:port`) of one broker by broker id; 0 is the master."""

    broker_name: str
    broker_addrs: dict[int, str]
    cluster: str = ""
    enable_acting_master: bool = False


class TopicMappingInfo(CamelBody):
    """What a broker says of a static topic: which logic queues it stores (`curr_id_map`), by its own queues."""

    topic: str = ""
    scope: str = ""
    total_queues: int = 0
    bname: str = ""
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[int, int] = {}


class TopicRouteData(CamelBody):
    """Where a topic's queues lie; those of a static topic are logic ones, told by the mappings of its brokers."""

    broker_datas: list[BrokerData] = []
    queue_datas: list[QueueData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicMappingInfo] | msgspec.UnsetType | None = msgspec.UNSET


class ClusterInfo(CamelBody):
    """All brokers by name, and broker names by cluster."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class TopicList(CamelBody):
    """Names of topics."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class ConsumerList(CamelBody):
    """Client ids of a group's consumers."""

    consumer_id_list: list[str] = []


class SubscriptionData(CamelBody):
    """What one consumer wants of one topic."""

    topic: str
    sub_string: str | None = None
    sub_version: int = 0
    expression_type: str | None = None


class CheckClientBody(CamelBody):
    """The subscription that a client wants to have checked before it starts; sent for filters that are not by tag."""

    subscription_data: SubscriptionData
    client_id: str | None = None
    group: str | None = None


class ConsumerData(CamelBody):
    """One consumer group of a client and its subscriptions."""

    group_name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: list[SubscriptionData] = []


class ProducerData(CamelBody):
    """One producer group of a client."""

    group_name: str


class HeartbeatData(CamelBody):
    """What a client says every 30 s. `without_sub` with a fingerprint only refreshes what was said before."""

    client_id: str = msgspec.field(name="clientID", default="")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class TopicConfigData(CamelBody):
    """One topic as brokers tell it."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] | None = None


class DataVersion(CamelBody):
    """How often and when a table was changed; equal ones mean equal tables."""

    counter: int = 0
    timestamp: int = 0
    state_version: int = 0


class KeyValueTable(CamelBody):
    """Texts by key."""

    table: dict[str, str] = {}


class BrokerMemberGroup(CamelBody):
    """A broker and its replicas by broker id."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = {}


class BrokerMemberGroupBody(CamelBody):
    """The answer that tells one."""

    broker_member_group: BrokerMemberGroup


class TopicConfigTable(CamelBody):
    """All topics of a broker by name."""

    topic_config_table: dict[str, TopicConfigData] = {}
    data_version: Any = None
    topic_queue_mapping_info_map: dict[str, TopicMappingInfo] = {}


class TopicConfigList(CamelBody):
    """Topics to create or change; the names of their attributes begin with + or -."""

    topic_config_list: list[TopicConfigData] = []


class RegisterBrokerBody(CamelBody):
    """What a broker tells a nameserver."""

    topic_config_serialize_wrapper: TopicConfigTable = msgspec.field(default_factory=TopicConfigTable)
    filter_server_list: list[str] | None = None


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """The readable offsets of one queue, as the topic's statistics tell them."""

    topic: str
    broker_name: str
    range: QueueRange


def encode_body(body: msgspec.Struct) -> bytes:
    """The body's JSON, with quoted keys throughout."""
    return msgspec.json.encode(body)


def decode_body(kind: type[_T], body: bytes) -> _T:
    """The body of that type, from JSON or fastjson's dialect; MESSAGE_MALFORMED where it is neither."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # Old servers write `{0:"ip"}` and numbers as text.
    try:
        return msgspec.convert(read_fastjson(body), kind, strict=False)
    except (ValueError, RecursionError) as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"A body of type {kind.__name__} cannot be read: {error}.") from None


def encode_topic_statistics(
    topic: str, broker_name: str, ranges: Iterable[QueueRange], *, per_second: float = 0.0
) -> bytes:
    """RocketMQ's TopicStatsTable; its keys are objects, as fastjson writes them. `per_second` are messages stored."""
    table = write_object_keys(
        (
            {"brokerName": broker_name, "queueId": item.queue_id, "topic": topic},
            {
                "lastUpdateTimestamp": item.last_store_timestamp_ms,
                "maxOffset": item.max_offset,
                "minOffset": item.min_offset,
            },
        )
        for item in ranges
    )
    return b'{"offsetTable":' + table + b',"topicPutTps":%a}' % round(per_second, 3)


def decode_topic_statistics(body: bytes) -> list[QueueStatistics]:
    """The queues of a TopicStatsTable, by broker and queue; MESSAGE_MALFORMED where it cannot be read."""
    try:
        table = read_fastjson(body)["offsetTable"]
        found = [_queue_statistics(dict(key), value) for key, value in table.items()]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"A table of topic statistics cannot be read: {error}.") from None
    return sorted(found, key=lambda item: (item.broker_name, item.range.queue_id))


def _queue_statistics(queue: dict[str, Any], value: dict[str, Any]) -> QueueStatistics:
    offsets = QueueRange(
        int(queue["queueId"]),
        int(value["minOffset"]),
        int(value["maxOffset"]),
        int(value.get("lastUpdateTimestamp", 0)),
    )
    return QueueStatistics(str(queue["topic"]), str(queue["brokerName"]), offsets)
