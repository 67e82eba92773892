"""Topic and group settings on the wire: the ext fields of code 17, and the JSON of codes 21, 200 and 201.

A topic's attributes travel as `+name=value` joined by commas (code 17) or as a map (code 21). One for which no type is
named takes messages of all of RocketMQ 4's types (MIXED). Groups use the fields of RocketMQ's SubscriptionGroupConfig;
its `retryMaxTimes` counts the deliveries after the first one. What has no field there, the first position, travels as
attributes of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from millstream.model.errors import MessageRefused, NameRefused
from millstream.model.group import (
    DEFAULT_BACKOFF_S,
    DEFAULT_MAX_ATTEMPTS,
    ExponentialBackoff,
    FirstPosition,
    GroupConfig,
)
from millstream.model.topic import (
    MAX_QUEUES,
    MESSAGE_TYPE_ATTRIBUTE,
    MessageType,
    Permission,
    TopicConfig,
    check_attribute_name,
)
from millstream.protocol.remoting.bodies import (
    CamelBody,
    TopicConfigData,
    TopicConfigTable,
    decode_body,
    encode_body,
)

__all__ = [
    "changed_topic",
    "decode_group",
    "decode_group_table",
    "decode_groups",
    "decode_topic",
    "decode_topic_table",
    "encode_group",
    "encode_group_table",
    "encode_topic_table",
    "parse_topic_fields",
    "topic_data",
    "topic_fields",
    "topic_of",
    "topics_of",
]

_LITE_MODEL: Final = "lite.sub.model"
_EXCLUSIVE: Final = "Exclusive"
_UNSPECIFIED: Final = "UNSPECIFIED"
_PERMISSIONS: Final = tuple(Permission(value) for value in range(8))
_CUSTOMIZED: Final = "CUSTOMIZED"
_EXPONENTIAL: Final = "EXPONENTIAL"
_FIRST_POSITION: Final = "consume.first.position"
_FIRST_TIME: Final = "consume.first.time"
_OWN_GROUP_ATTRIBUTES: Final = (_LITE_MODEL, _FIRST_POSITION, _FIRST_TIME)
_NO_VERSION: Final = {"counter": 0, "timestamp": 0, "stateVersion": 0}

_WITHOUT_EFFECT: Final = "rocketmq."
"""Before the name of a group's setting that has no effect here; so it is kept among the attributes."""

_FIELDS_WITHOUT_EFFECT: Final = {
    "consume_from_min_enable": "consumeFromMinEnable",
    "consume_broadcast_enable": "consumeBroadcastEnable",
    "retry_queue_nums": "retryQueueNums",
    "broker_id": "brokerId",
    "which_broker_when_consume_slowly": "whichBrokerWhenConsumeSlowly",
    "notify_consumer_ids_changed_enable": "notifyConsumerIdsChangedEnable",
    "group_sys_flag": "groupSysFlag",
    "consume_timeout_minute": "consumeTimeoutMinute",
    "subscription_data_set": "subscriptionDataSet",
}


class _CustomizedRetry(CamelBody):
    next: list[int] = msgspec.field(default_factory=list)


class _ExponentialRetry(CamelBody):
    initial: int = 5_000
    max: int = 7_200_000
    multiplier: float | int = 2


class _RetryPolicy(CamelBody, omit_defaults=True):
    type: str = msgspec.field(default_factory=lambda: _CUSTOMIZED)
    customized_retry_policy: _CustomizedRetry | None = None
    exponential_retry_policy: _ExponentialRetry | None = None


class _GroupData(CamelBody):
    group_name: str
    consume_message_orderly: bool = False
    retry_max_times: int = DEFAULT_MAX_ATTEMPTS - 1
    group_retry_policy: _RetryPolicy | None = None
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[dict[str, Any]] | None = None
    attributes: dict[str, str] | None = None


class _GroupList(CamelBody):
    group_config_list: list[_GroupData] = msgspec.field(default_factory=list)


class _GroupTable(CamelBody):
    subscription_group_table: dict[str, _GroupData] = msgspec.field(default_factory=dict)
    data_version: Any = None


def topic_fields(config: TopicConfig) -> dict[str, str]:
    """The ext fields of a request that creates the topic, and refuses to change one that is there."""
    attributes = {MESSAGE_TYPE_ATTRIBUTE: config.message_type.value, **config.attributes}
    return {
        "topic": config.name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(config.read_queues),
        "writeQueueNums": str(config.write_queues),
        "perm": str(int(config.permission)),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "createOnly": "true",
        "order": "true" if config.ordered else "false",
        "attributes": ",".join(f"+{name}={value}" for name, value in attributes.items()),
    }


def parse_topic_fields(ext: dict[str, str], present: TopicConfig | None = None) -> TopicConfig:
    """The topic of those ext fields, which change the attributes that the `present` one has.

    ILLEGAL_TOPIC for a blank name or attributes that cannot be changed so, MESSAGE_MALFORMED for bad numbers or types.
    """
    name = ext.get("topic", "").strip()
    if not name:
        raise NameRefused("ILLEGAL_TOPIC", "The request names no topic.")
    changes = dict(_attribute_change(item) for item in filter(None, ext.get("attributes", "").split(",")))
    attributes = _alter_attributes(name, present, changes)
    try:
        read, write = int(ext.get("readQueueNums", "4")), int(ext.get("writeQueueNums", "4"))
        permission = int(ext.get("perm", "6"))
    except ValueError as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"The settings of topic {name} cannot be read: {error}.") from None
    if not read + write:
        raise MessageRefused("MESSAGE_MALFORMED", f"Topic {name} asks for no queue (1 to {MAX_QUEUES}).")
    return _topic(name, read, write, permission, attributes, ordered=ext.get("order") == "true")


def changed_topic(data: TopicConfigData, present: TopicConfig | None) -> TopicConfig:
    """The topic of a list of topics to create or change (code 18); attributes as in `parse_topic_fields`."""
    attributes = _alter_attributes(data.topic_name, present, data.attributes or {})
    return _topic(
        data.topic_name, data.read_queue_nums, data.write_queue_nums, data.perm, attributes, ordered=data.order
    )


def _attribute_change(item: str) -> tuple[str, str]:
    key, _, value = item.partition("=")
    return key.strip(), value.strip()


def _alter_attributes(name: str, present: TopicConfig | None, changes: Mapping[str, str]) -> dict[str, str]:
    """The attributes with changes, whose names begin with + (set) or - (remove)."""
    attributes = {} if present is None else {MESSAGE_TYPE_ATTRIBUTE: present.message_type.value, **present.attributes}
    for sign_and_key, value in changes.items():
        key = sign_and_key[1:]
        if sign_and_key.startswith("+") and key:
            check_attribute_name(name, key)
            attributes[key] = value
        elif sign_and_key.startswith("-") and key in attributes:
            del attributes[key]
        else:
            raise NameRefused(
                "ILLEGAL_TOPIC",
                f"The topic {name!r} cannot change its attributes by {sign_and_key[:80]!r}.",
                remedy="Write +name=value to set an attribute, -name to remove one that is there.",
            )
    return attributes


def topic_data(config: TopicConfig) -> TopicConfigData:
    """The topic as brokers tell it to nameservers and tools."""
    return TopicConfigData(
        config.name,
        config.read_queues,
        config.write_queues,
        int(config.permission),
        order=config.ordered,
        attributes={MESSAGE_TYPE_ATTRIBUTE: config.message_type.value, **config.attributes},
    )


def encode_topic_table(topics: Iterable[TopicConfig]) -> bytes:
    """The body that tells all topics of a broker."""
    table = TopicConfigTable({config.name: topic_data(config) for config in topics}, _NO_VERSION)
    return encode_body(table)


def decode_topic_table(body: bytes) -> list[TopicConfig]:
    """The topics of such a body."""
    return topics_of(decode_body(TopicConfigTable, body))


def decode_topic(body: bytes) -> TopicConfig:
    """The topic of a body that tells one; MESSAGE_MALFORMED also for settings that we do not know."""
    return topic_of(decode_body(TopicConfigData, body))


def topics_of(table: TopicConfigTable) -> list[TopicConfig]:
    """The topics that a broker tells. Those with settings that we do not know are passed over."""
    found = []
    for data in table.topic_config_table.values():
        try:
            found.append(topic_of(data))
        except MessageRefused:
            continue
    return found


def topic_of(data: TopicConfigData) -> TopicConfig:
    """The topic that a broker tells; MESSAGE_MALFORMED for settings that we do not know."""
    attributes = dict(data.attributes or {})
    return _topic(
        data.topic_name, data.read_queue_nums, data.write_queue_nums, data.perm, attributes, ordered=data.order
    )


def encode_group(config: GroupConfig) -> bytes:
    """The body that creates the group."""
    return encode_body(_group_data(config))


def decode_group(body: bytes, present: GroupConfig | None = None) -> GroupConfig:
    """The group of such a body, whose attributes change those of the `present` one where their names begin with + or -.

    So they do where there are none at all, as tools send them; a body without the field has no attributes.
    """
    return _group(decode_body(_GroupData, body), present)


def decode_groups(body: bytes, find: Callable[[str], GroupConfig | None]) -> list[GroupConfig]:
    """The groups of a list to create or change (code 225); `find` gives those that are there."""
    configs = decode_body(_GroupList, body).group_config_list
    return [_group(data, find(data.group_name)) for data in configs]


def encode_group_table(groups: Iterable[GroupConfig]) -> bytes:
    """The body that tells all groups of a broker."""
    return encode_body(_GroupTable({config.name: _group_data(config) for config in groups}, _NO_VERSION))


def decode_group_table(body: bytes) -> list[GroupConfig]:
    """The groups of such a body."""
    return [_group(data) for data in decode_body(_GroupTable, body).subscription_group_table.values()]


def _topic(
    name: str, read: int, write: int, permission: int, attributes: dict[str, str], *, ordered: bool = False
) -> TopicConfig:
    # None at all is what a broker without a queue of a static topic has.
    if not 0 <= read <= MAX_QUEUES or not 0 <= write <= MAX_QUEUES:
        raise MessageRefused(
            "MESSAGE_MALFORMED",
            f"Topic {name} asks for {read} readable and {write} writable queues (0 to {MAX_QUEUES}).",
        )
    kind = attributes.pop(MESSAGE_TYPE_ATTRIBUTE, _UNSPECIFIED).upper()
    try:
        # RocketMQ's broker looks at no type, and tools that are older than types name none.
        message_type = MessageType.MIXED if kind == _UNSPECIFIED else MessageType(kind)
        return TopicConfig(name, message_type, read, write, _PERMISSIONS[permission & 7], attributes, ordered)
    except ValueError as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"The settings of topic {name} cannot be read: {error}.") from None


def _group_data(config: GroupConfig) -> _GroupData:
    steps = _CustomizedRetry([step * 1000 for step in config.backoff_s])
    policy = _RetryPolicy(customized_retry_policy=steps)
    curve = config.exponential
    if curve is not None:
        policy.type = _EXPONENTIAL
        policy.exponential_retry_policy = _ExponentialRetry(
            curve.initial_ms, curve.longest_ms, _whole(curve.multiplier)
        )
    attributes = {key: value for key, value in config.attributes.items() if not key.startswith(_WITHOUT_EFFECT)}
    attributes |= {_LITE_MODEL: _EXCLUSIVE} if config.lite_exclusive else {}
    if config.first_position is not FirstPosition.FIRST:
        attributes |= {_FIRST_POSITION: config.first_position.value, _FIRST_TIME: str(config.first_time_ms)}
    data = _GroupData(
        config.name,
        config.fifo,
        config.max_attempts - 1,
        policy,
        consume_enable=config.enabled,
        attributes=attributes or None,
    )
    for field, name in _FIELDS_WITHOUT_EFFECT.items():
        if _WITHOUT_EFFECT + name in config.attributes:
            setattr(data, field, msgspec.json.decode(config.attributes[_WITHOUT_EFFECT + name]))
    return data


def _whole(number: float) -> float | int:
    """RocketMQ knows whole multipliers only."""
    return int(number) if float(number).is_integer() else number


def _without_effect(data: _GroupData) -> dict[str, str]:
    """The settings that have no effect here and are not what RocketMQ has by default."""
    usual = _GroupData(data.group_name)
    without_effect = (
        (name, getattr(data, field), getattr(usual, field)) for field, name in _FIELDS_WITHOUT_EFFECT.items()
    )
    return {
        _WITHOUT_EFFECT + name: msgspec.json.encode(value).decode()
        for name, value, default in without_effect
        if value != default and value != []
    }


def _group_attributes(data: _GroupData, present: GroupConfig | None) -> dict[str, str]:
    attributes = data.attributes
    is_change = attributes is not None and all(key.startswith(("+", "-")) for key in attributes)
    if attributes is None or not is_change:
        return attributes or {}
    held = (_group_data(present).attributes if present is not None else None) or {}
    removed = {key[1:] for key in attributes if key.startswith("-")}
    added = {key[1:]: value for key, value in attributes.items() if key.startswith("+")}
    return {key: value for key, value in held.items() if key not in removed} | added


def _group(data: _GroupData, present: GroupConfig | None = None) -> GroupConfig:
    policy = data.group_retry_policy or _RetryPolicy()
    steps = policy.customized_retry_policy.next if policy.customized_retry_policy else []
    curve = None
    if policy.type.upper() == _EXPONENTIAL:
        retry = policy.exponential_retry_policy or _ExponentialRetry()
        curve = ExponentialBackoff(retry.initial, retry.max, float(retry.multiplier))
    attributes = _group_attributes(data, present)
    others = (key for key in attributes if key not in _OWN_GROUP_ATTRIBUTES and not key.startswith(_WITHOUT_EFFECT))
    kept = {key: attributes[key] for key in others}
    try:
        first_position = FirstPosition(attributes.get(_FIRST_POSITION, FirstPosition.FIRST.value))
        first_time_ms = int(attributes.get(_FIRST_TIME, "0"))
    except ValueError as error:
        words = f"The settings of group {data.group_name} cannot be read: {error}."
        raise MessageRefused("MESSAGE_MALFORMED", words) from None
    return GroupConfig(
        data.group_name,
        data.consume_message_orderly,
        max(1, data.retry_max_times + 1),
        tuple(max(0, step // 1000) for step in steps) or DEFAULT_BACKOFF_S,
        exponential=curve,
        enabled=data.consume_enable,
        first_position=first_position,
        first_time_ms=first_time_ms,
        lite_exclusive=attributes.get(_LITE_MODEL) == _EXCLUSIVE,
        attributes=kept | _without_effect(data),
    )
