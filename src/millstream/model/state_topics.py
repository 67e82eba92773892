"""The system topics in which proxies keep protocol state: compacted, with one queue each.

Proxies write them in their own name and brokers take nothing else there; with access control only super users, as
proxies are, read or write them.
"""

from __future__ import annotations

from typing import Final

from millstream.model.topic import Permission, TopicConfig

__all__ = [
    "AMQP_TOPIC",
    "HTTP_SUBSCRIPTIONS_TOPIC",
    "MQTT_RETAINED_TOPIC",
    "MQTT_SESSIONS_TOPIC",
    "ROUTES_TOPIC",
    "is_state_topic",
    "state_topic",
]

MQTT_SESSIONS_TOPIC: Final = "rmq_sys_MILLSTREAM_MQTT_SESSIONS"
"""The sessions of MQTT clients, by client id."""

MQTT_RETAINED_TOPIC: Final = "rmq_sys_MILLSTREAM_MQTT_RETAINED"
"""Retained messages, by MQTT topic."""

AMQP_TOPIC: Final = "rmq_sys_MILLSTREAM_AMQP"
"""Exchanges, queues and bindings that AMQP clients declared."""

HTTP_SUBSCRIPTIONS_TOPIC: Final = "rmq_sys_MILLSTREAM_HTTP_SUBSCRIPTIONS"
"""Subscriptions whose events are posted to a sink, by their id."""

ROUTES_TOPIC: Final = "rmq_sys_MILLSTREAM_ROUTES"
"""Which messages go to which light queues. Each broker has one of its own, for the topics that it holds."""

_NAMES: Final = frozenset(
    (MQTT_SESSIONS_TOPIC, MQTT_RETAINED_TOPIC, AMQP_TOPIC, HTTP_SUBSCRIPTIONS_TOPIC, ROUTES_TOPIC)
)


def is_state_topic(name: str | None) -> bool:
    """Whether proxies keep their state in the topic."""
    return name in _NAMES


def state_topic(name: str) -> TopicConfig:
    """The settings of a state topic: clients find no queue there that they could write."""
    return TopicConfig(
        name,
        read_queues=1,
        write_queues=1,
        permission=Permission.READ,
        attributes={"cleanup.policy": "COMPACTION"},
    )
