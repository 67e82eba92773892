"""Maps AMQP names to topics, groups and light queues; a virtual host other than `/` is a namespace."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from millstream.model.escaped_names import escape_name
from millstream.model.group import MAX_GROUP_CHARACTERS
from millstream.model.topic import MAX_TOPIC_CHARACTERS
from millstream.proxy.amqp.declarations import AmqpQueue

__all__ = [
    "DEFAULT_HOST",
    "TRANSIENT_TOPIC",
    "group_of_queue",
    "light_name_of_queue",
    "topic_of_exchange",
    "topic_of_queue",
]

DEFAULT_HOST: Final = "/"
"""The virtual host without a namespace."""

TRANSIENT_TOPIC: Final = "amqp-transient"
"""The topic of what is sent to queues that live no longer than their users: a topic for each would outlive them."""

_LIGHT_PREFIX: Final = "amqp-"
_KNOWN_NAMES: Final = 8192
_MAX_LIGHT_CHARACTERS: Final = MAX_TOPIC_CHARACTERS - len("%LMQ%")


def topic_of_exchange(virtual_host: str, name: str) -> str:
    """The topic that holds what is published to an exchange."""
    return _in_namespace(virtual_host, name, "", MAX_TOPIC_CHARACTERS)


def topic_of_queue(virtual_host: str, queue: AmqpQueue) -> str:
    """The topic that holds what is published to a queue by the default exchange."""
    name = TRANSIENT_TOPIC if queue.is_transient else queue.name
    return _in_namespace(virtual_host, name, "", MAX_TOPIC_CHARACTERS)


def group_of_queue(virtual_host: str, name: str) -> str:
    """The group that consumes a queue."""
    return _in_namespace(virtual_host, name, "", MAX_GROUP_CHARACTERS)


def light_name_of_queue(virtual_host: str, name: str) -> str:
    """The NAME of a queue's light queue."""
    return _in_namespace(virtual_host, name, _LIGHT_PREFIX, _MAX_LIGHT_CHARACTERS)


@lru_cache(maxsize=_KNOWN_NAMES)
def _in_namespace(virtual_host: str, name: str, prefix: str, max_characters: int) -> str:
    namespace = "" if virtual_host == DEFAULT_HOST else f"{virtual_host}%"
    return prefix + namespace + escape_name(name, max_characters - len(prefix) - len(namespace))
