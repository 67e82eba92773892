"""What nameservers are told of a broker's topics.

RocketMQ's tools find consumer groups by the names of their retry topics. Those of groups whose messages are popped are
never made, so nameservers are told of a retry topic for each group, whether or not it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millstream.broker.broker import Broker
from millstream.model.topic import RETRY_PREFIX, TopicConfig

__all__ = ["TopicRegistration"]


class TopicRegistration:
    """The topics as clients may use them, drained or not, and the groups' retry topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def all(self) -> Iterator[TopicConfig]:
        """All of them."""
        broker = self._broker
        permission = broker.maintenance.permission
        yield from map(permission.apply_to, broker.topics.all())
        names = (RETRY_PREFIX + group.name for group in broker.groups.all())
        yield from (permission.apply_to(_retry_topic(name)) for name in names if broker.topics.find(name) is None)

    def find(self, name: str) -> TopicConfig | None:
        """One of them, or None."""
        broker, topic = self._broker, self._broker.topics.find(name)
        if topic is None and name.startswith(RETRY_PREFIX) and broker.groups.find(name.removeprefix(RETRY_PREFIX)):
            topic = _retry_topic(name)
        return None if topic is None else broker.maintenance.permission.apply_to(topic)

    def watch(self, changed: Callable[[str, TopicConfig | None], None]) -> None:
        """Have it called with each that is new or changed, and with None for one that is gone."""
        self._broker.topics.on_change.append(lambda name, _: changed(name, self.find(name)))
        self._broker.groups.on_change.append(lambda name: changed(RETRY_PREFIX + name, self.find(RETRY_PREFIX + name)))


def _retry_topic(name: str) -> TopicConfig:
    return TopicConfig(name, read_queues=1, write_queues=1)
