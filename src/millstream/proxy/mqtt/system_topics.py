"""The topics below `$SYS`: what a port counts, as retained messages that are stored nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream import __version__
from millstream.protocol.mqtt.topics import filter_matches
from millstream.proxy.mqtt.application_message import ApplicationMessage

if TYPE_CHECKING:
    from millstream.proxy.mqtt.server import MqttServer

__all__ = ["SYSTEM_INTERVAL_S", "SystemTopics", "is_system_topic"]

SYSTEM_INTERVAL_S: Final = 10.0
"""Seconds between two messages with the counts of a port to those who subscribed to them."""

_PREFIX: Final = "$SYS/broker/"


def is_system_topic(topic: str) -> bool:
    """Whether the topic is one that no client publishes to."""
    return topic.startswith("$SYS/") or topic == "$SYS"


class SystemTopics:
    """Of one port: each proxy has its own."""

    def __init__(self, server: MqttServer) -> None:
        self._server = server
        self._told_s = server.clock.monotonic_s()

    def matching(self, topic_filter: str) -> list[ApplicationMessage]:
        """The messages of now whose topics the filter matches."""
        if not topic_filter.startswith("$SYS"):
            return []
        return [one for one in self._messages() if filter_matches(topic_filter, one.topic)]

    def tell(self) -> None:
        """Tell the counts to those who subscribed to them, if it is time."""
        now_s = self._server.clock.monotonic_s()
        if now_s - self._told_s >= SYSTEM_INTERVAL_S:
            self._told_s = now_s
            for message in self._messages():
                self._server.subscriptions.spread(message)

    def _messages(self) -> list[ApplicationMessage]:
        server = self._server
        counts = {
            "version": f"millstream {__version__}",
            "clients/connected": server.traffic.sessions,
            "subscriptions/count": len(server.subscriptions),
            "retained messages/count": len(server.retained),
            "messages/received": server.traffic.messages_in,
            "messages/sent": server.traffic.messages_out,
            "publish/messages/dropped": server.traffic.dropped,
            "bytes/received": server.statistics.bytes_received,
            "bytes/sent": server.statistics.bytes_sent,
        }
        return [
            ApplicationMessage(_PREFIX + name, str(value).encode(), 0, retain=True) for name, value in counts.items()
        ]
