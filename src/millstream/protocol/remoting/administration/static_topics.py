"""Static topics on the wire: the mapping of logic queues (codes 351 and 513), and its form for nameservers.

RocketMQ's TopicQueueMappingDetail, TopicConfigAndQueueMapping and TopicQueueMappingInfo. Source of the names: RocketMQ
5.3 (facts only).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from millstream.model.errors import MessageRefused
from millstream.model.logic_queue import GLOBAL_SCOPE, LogicQueue, MappingItem, TopicMapping
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.remoting.administration.settings import topic_data, topic_fields, topic_of
from millstream.protocol.remoting.bodies import CamelBody, TopicConfigData, TopicMappingInfo, decode_body, encode_body

__all__ = [
    "LOGIC_BROKER_NAME",
    "PHYSICAL",
    "StaticTopicState",
    "decode_mapping",
    "decode_topic_state",
    "encode_mapping",
    "encode_topic_state",
    "is_physical",
    "leaders",
    "mapping_info",
    "parse_static_topic",
    "static_topic_fields",
]

LOGIC_BROKER_NAME: Final = "__syslo__global__"
"""Stands in the place of the broker's name in a logic queue, as in RocketMQ's clients."""


PHYSICAL: Final = {"lo": "false"}
"""The fields of a request that means the broker's own queue, also of a static topic."""


def is_physical(ext: Mapping[str, str]) -> bool:
    """Whether a request names the broker's own queue: then of a static topic it means no logic one, as in RocketMQ."""
    return ext.get("lo") == "false"


class _Item(CamelBody):
    gen: int = 0
    queue_id: int = 0
    bname: str = ""
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1


class _Detail(TopicMappingInfo):
    hosted_queues: dict[int, list[_Item]] = msgspec.field(default_factory=dict)


class _TopicState(TopicConfigData):
    mapping_detail: _Detail | None = None


class StaticTopicState(msgspec.Struct, frozen=True):
    """A topic as one broker has it; without a mapping its queues are bound to the broker."""

    config: TopicConfig
    mapping: TopicMapping | None


def mapping_info(mapping: TopicMapping) -> TopicMappingInfo:
    """What nameservers are told of a mapping: which logic queues the broker leads, and which its own queues are."""
    return TopicMappingInfo(
        topic=mapping.topic,
        scope=mapping.scope,
        total_queues=mapping.total_queues,
        bname=mapping.broker_name,
        epoch=mapping.epoch,
        curr_id_map=mapping.led_queues,
    )


def encode_mapping(mapping: TopicMapping) -> bytes:
    """The body of a request that creates or changes a static topic."""
    return encode_body(_detail(mapping))


def decode_mapping(body: bytes) -> TopicMapping:
    """The mapping of such a body; MESSAGE_MALFORMED, or STATIC_TOPIC_STATE where it contradicts itself."""
    return _mapping(decode_body(_Detail, body))


def encode_topic_state(config: TopicConfig, mapping: TopicMapping | None) -> bytes:
    """The body that answers code 351."""
    data = topic_data(config)
    fields = {name: getattr(data, name) for name in data.__struct_fields__}
    return encode_body(_TopicState(**fields, mapping_detail=None if mapping is None else _detail(mapping)))


def decode_topic_state(body: bytes) -> StaticTopicState:
    """The topic of such a body."""
    data = decode_body(_TopicState, body)
    detail = data.mapping_detail
    return StaticTopicState(topic_of(data), None if detail is None else _mapping(detail))


def static_topic_fields(config: TopicConfig, *, force: bool = False) -> dict[str, str]:
    """The ext fields of code 513; the numbers of queues are the broker's own ones, and may be 0."""
    fields = topic_fields(config)
    # It is put beside the mapping at every step of a move, so it changes what is there.
    del fields["createOnly"]
    return {**fields, "force": "true" if force else "false"}


def parse_static_topic(ext: Mapping[str, str]) -> TopicConfig:
    """The topic of those fields; MESSAGE_MALFORMED for bad numbers or types."""
    added = (item[1:].partition("=") for item in ext.get("attributes", "").split(",") if item.startswith("+"))
    # Tools name no type; only these two kinds can be static.
    attributes = {"message.type": MessageType.NORMAL.value, **{name: value for name, _, value in added}}
    try:
        read, write = int(ext.get("readQueueNums", "0")), int(ext.get("writeQueueNums", "0"))
        permission = int(ext.get("perm", "6"))
    except ValueError as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"The settings of a static topic cannot be read: {error}.") from None
    return topic_of(TopicConfigData(ext.get("topic", ""), read, write, permission, attributes=attributes))


def leaders(infos: Mapping[str, TopicMappingInfo]) -> dict[int, str | None]:
    """The broker that stores each logic queue, by number; None for a queue that none does, as while it is moved.

    Of two brokers that say so the one with the higher epoch counts.
    """
    total = max((info.total_queues for info in infos.values()), default=0)
    found: dict[int, str | None] = dict.fromkeys(range(total))
    for broker_name, info in sorted(infos.items(), key=lambda pair: (pair[1].epoch, pair[0])):
        for number in info.curr_id_map:
            if number in found:
                found[number] = broker_name
    return found


def _detail(mapping: TopicMapping) -> _Detail:
    info = mapping_info(mapping)
    hosted = {
        number: [
            _Item(
                item.generation, item.queue_id, item.broker_name, item.logic_offset, item.start_offset,
                item.end_offset, item.start_ms, item.end_ms,
            )
            for item in queue.items
        ]
        for number, queue in mapping.queues.items()
    }  # fmt: skip
    fields = {name: getattr(info, name) for name in info.__struct_fields__}
    return _Detail(**fields, hosted_queues=hosted)


def _mapping(detail: _Detail) -> TopicMapping:
    if not detail.topic or not detail.bname:
        raise MessageRefused("MESSAGE_MALFORMED", "A mapping of queues names no topic or no broker.")
    queues = {
        number: LogicQueue(
            number,
            tuple(
                MappingItem(
                    item.gen, item.bname, item.queue_id, item.logic_offset, item.start_offset,
                    item.end_offset, item.time_of_start, item.time_of_end,
                )
                for item in items
            ),
        )
        for number, items in detail.hosted_queues.items()
    }  # fmt: skip
    mapping = TopicMapping(
        detail.topic, detail.bname, detail.total_queues, detail.epoch, queues, detail.scope or GLOBAL_SCOPE
    )
    mapping.check()
    return mapping
