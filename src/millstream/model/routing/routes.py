"""Routes: a broker's view of a light queue and its bindings, and the names by which bindings match messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from millstream.model import properties as names
from millstream.model.errors import NameRefused
from millstream.model.group import check_group_name
from millstream.model.property_text import unescape_text
from millstream.model.routing.amqp_bindings import AmqpBinding
from millstream.model.routing.mqtt_filters import check_mqtt_filter
from millstream.model.topic import check_topic_name, is_system_topic

__all__ = [
    "AMQP_EXCHANGE",
    "AMQP_ROUTING_KEY",
    "DROP",
    "LIGHT_KINDS",
    "MAX_FURTHER_KEYS",
    "MQTT_TOPIC",
    "ORIGIN_MQTT_TOPIC",
    "REJECT",
    "SESSION_KIND",
    "LightQueueConfig",
    "RouteBinding",
    "encode_further_keys",
    "further_keys",
    "mqtt_name_of",
    "place_in_amqp",
]

SESSION_KIND: Final = "mqtt"
"""The kind of the light queues of MQTT sessions; all of them are read by one group."""

LIGHT_KINDS: Final = (SESSION_KIND, "share", "amqp")
"""What a light queue serves: an MQTT session, a shared subscription of MQTT, an AMQP queue."""

MQTT_TOPIC: Final = "mqtt_topic"
"""In a message: its full MQTT topic, as `property_text` escapes it."""

ORIGIN_MQTT_TOPIC: Final = "originMqttTopic"
"""The same of RocketMQ's own MQTT proxy."""

AMQP_EXCHANGE: Final = "amqp_exchange"
"""In a message: the AMQP exchange that it was published to; blank for the default exchange."""

AMQP_ROUTING_KEY: Final = "amqp_rk"
"""In a message: its AMQP routing key."""


DROP: Final = "drop"
REJECT: Final = "reject"
"""What becomes of messages that are too many for a light queue: its oldest ones go, or new ones do not come."""

MAX_FURTHER_KEYS: Final = 256
"""Routing keys of an AMQP message beside its own at most: what a match costs grows with each."""

_KNOWN_KEYS: Final = 1024


@dataclass(frozen=True, slots=True)
class LightQueueConfig:
    """A light queue as it was declared: the group that reads it, and when it goes by itself (`expires_ms` since 1970).

    With `overflow` the broker keeps at most `max_length` messages ready: DROP lets go of the oldest ones, REJECT takes
    no new ones. Without it the length is for whoever else keeps it.
    """

    kind: str
    group: str
    expires_ms: int | None = None
    max_length: int | None = None
    overflow: str | None = None

    def check(self, name: str) -> None:
        """Refuse what no light queue can be: ILLEGAL_ROUTE, ILLEGAL_GROUP."""
        check_group_name(self.group)
        if self.kind not in LIGHT_KINDS:
            raise NameRefused(
                "ILLEGAL_ROUTE",
                f"The light queue {name!r} is of kind {self.kind[:40]!r}.",
                remedy=f"Kinds are {', '.join(LIGHT_KINDS)}.",
            )
        if min(self.expires_ms or 0, self.max_length or 0) < 0:
            raise NameRefused(
                "ILLEGAL_ROUTE",
                f"The light queue {name!r} expires at {self.expires_ms} and has {self.max_length} messages at most.",
                remedy="Give numbers of 0 or more.",
            )
        if self.overflow not in (None, DROP, REJECT) or (self.overflow is not None and self.max_length is None):
            raise NameRefused(
                "ILLEGAL_ROUTE",
                f"The light queue {name!r} has the overflow {self.overflow!r} and {self.max_length} messages at most.",
                remedy=f"Give {DROP} or {REJECT} with a length.",
            )


@dataclass(frozen=True, slots=True)
class RouteBinding:
    """What a light queue wants of a topic: the messages that an MQTT filter or an AMQP binding fits; one of the two."""

    topic: str
    mqtt: str | None = None
    amqp: AmqpBinding | None = None

    def check(self) -> None:
        """Refuse what no binding can be: ILLEGAL_ROUTE, ILLEGAL_TOPIC."""
        check_topic_name(self.topic)
        if is_system_topic(self.topic):
            raise NameRefused("ILLEGAL_ROUTE", f"The topic {self.topic!r} is the system's own and takes no bindings.")
        if (self.mqtt is None) is (self.amqp is None):
            raise NameRefused(
                "ILLEGAL_ROUTE",
                f"A binding to the topic {self.topic!r} has {'neither' if self.mqtt is None else 'both'} of a filter "
                "of MQTT and a binding of AMQP.",
                remedy="Give one of the two.",
            )
        if self.mqtt is not None:
            check_mqtt_filter(self.mqtt)
        if self.amqp is not None:
            self.amqp.check()


def mqtt_name_of(topic: str, properties: Mapping[str, str]) -> str:
    """The MQTT topic of a message: what it says of that itself, else its topic and, if it has one, its tag."""
    own = properties.get(MQTT_TOPIC)
    if own:
        return unescape_text(own)
    origin_topic = properties.get(ORIGIN_MQTT_TOPIC)
    if origin_topic:
        return origin_topic
    tag = properties.get(names.TAGS)
    return f"{topic}/{tag}" if tag else topic


def place_in_amqp(topic: str, properties: Mapping[str, str]) -> tuple[str, str]:
    """The exchange and the routing key of a message: what it says of them itself; else its topic, and its MQTT topic
    with dots for slashes, as RabbitMQ has it, or its tag."""
    exchange, key = properties.get(AMQP_EXCHANGE), properties.get(AMQP_ROUTING_KEY)
    if key is None:
        name = properties.get(MQTT_TOPIC)
        key = properties.get(names.TAGS, "") if name is None else name.replace("/", ".")
    return topic if exchange is None else exchange, key


def encode_further_keys(keys: Sequence[str]) -> str:
    """The property `__AMQP_KEYS` of a message that is routed by these keys beside its own."""
    return json.dumps(list(keys), ensure_ascii=False)


def further_keys(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The routing keys of an AMQP message beside its own; none where the property says none."""
    text = properties.get(names.AMQP_KEYS)
    return () if text is None else _decode_keys(text)


@lru_cache(maxsize=_KNOWN_KEYS)
def _decode_keys(text: str) -> tuple[str, ...]:
    # Any client of remoting may have written it.
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    keys = [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
    return tuple(keys[:MAX_FURTHER_KEYS])
