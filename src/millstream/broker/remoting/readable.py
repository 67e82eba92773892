"""Which topics a group may have messages of: access control was asked about all of these."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.broker.broker import Broker
from millstream.broker.remoting.clients import ConsumerRegistry

__all__ = ["ReadableTopics"]


@dataclass(frozen=True, slots=True)
class ReadableTopics:
    """Holds the topic that the request names, those that the group's members want, and where it has a position."""

    broker: Broker
    consumers: ConsumerRegistry
    group: str
    named: str

    def __contains__(self, topic: object) -> bool:
        found = self.broker.topics.find(topic) if isinstance(topic, str) else None
        if found is None:
            return False
        if found.name == self.named or self.consumers.subscription(self.group, found.name) is not None:
            return True
        queues = range(found.queues)
        return any(self.broker.queues.own_offset(self.group, found.name, queue_id) is not None for queue_id in queues)
