"""Queues in bodies, and the bodies that name sets of them: the locks of ordered consumers (codes 41 and 42).

Source of the names: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

import msgspec

from millstream.protocol.remoting.bodies import CamelBody

__all__ = ["LockBody", "LockedBody", "QueueName"]


class QueueName(CamelBody):
    """A queue as clients name it."""

    topic: str
    broker_name: str
    queue_id: int


class LockBody(CamelBody):
    """The queues that a client of a group wants for itself, or gives up."""

    consumer_group: str
    client_id: str
    mq_set: list[QueueName] = msgspec.field(default_factory=list)


class LockedBody(CamelBody):
    """The queues that it has for itself now."""

    locked: list[QueueName] = msgspec.field(name="lockOKMQSet", default_factory=list)
