"""The bodies of QUERY_ASSIGNMENT (400) and SET_MESSAGE_REQUEST_MODE (401).

Source of the names: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

import msgspec

from millstream.protocol.remoting.bodies import CamelBody
from millstream.protocol.remoting.messages.offsets import QueueName

__all__ = ["AssignedQueue", "AssignmentBody", "AssignmentQuery", "RequestModeBody"]


class AssignmentQuery(CamelBody):
    """A member of a group asks which queues of a topic are its own."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"


class AssignedQueue(CamelBody):
    """One queue and the way to its messages; queue -1 means all queues of the broker."""

    message_queue: QueueName
    mode: str
    attachments: dict[str, str] | None = None


class AssignmentBody(CamelBody, omit_defaults=True):
    """The answer. Without a list the client keeps the queues that it has."""

    message_queue_assignments: list[AssignedQueue] | None = None


class RequestModeBody(CamelBody):
    """How a group is to get a topic's messages: PULL or POP."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = msgspec.field(default=0)
