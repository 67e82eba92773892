"""The topics that a broker has without anybody making them: tools and clients ask for their routes."""

from __future__ import annotations

from millstream.model.topic import Permission, TopicConfig
from millstream.protocol.trace import TRACE_TOPIC

__all__ = ["REPLY_TOPIC_SUFFIX", "own_topics"]

REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
"""Behind a cluster's name: the topic to whose brokers answers of request-reply go."""

_ALL = Permission.READ | Permission.WRITE | Permission.INHERIT
_CLUSTER_QUEUES = 16


def own_topics(broker_name: str, cluster: str) -> tuple[TopicConfig, ...]:
    """By the cluster's and the broker's name tools find brokers and measure them; answers and traces go to the others.

    RocketMQ 5.3 has more, which are empty and which no tool asks for.
    """
    return (
        TopicConfig(cluster, read_queues=_CLUSTER_QUEUES, write_queues=_CLUSTER_QUEUES, permission=_ALL),
        TopicConfig(broker_name, read_queues=1, write_queues=1, permission=_ALL),
        TopicConfig(cluster + REPLY_TOPIC_SUFFIX, read_queues=1, write_queues=1, permission=_ALL),
        TopicConfig(TRACE_TOPIC, read_queues=1, write_queues=1),
    )
