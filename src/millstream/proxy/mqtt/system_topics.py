"""The topics below `$SYS`: port statistics as retained messages that are not stored."""

from __future__ import annotations

from typing import Final

from millstream import __version__
from millstream.protocol.mqtt.topics import filter_matches
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.mqtt.services import MqttServices

__all__ = ["SYSTEM_INTERVAL_S", "SystemTopics", "is_system_topic"]

SYSTEM_INTERVAL_S: Final = 10.0
"""Seconds between two messages with the counts of a port to those who subscribed to them."""

_PREFIX: Final = "$SYS/broker/"


def is_system_topic(topic: str) -> bool:
    """Whether the topic is one that no client publishes to."""
    return topic.startswith("$SYS/") or topic == "$SYS"


class SystemTopics:
    """Of one port: each proxy has its own."""

    def __init__(self, services: MqttServices) -> None:
        self._services = services
        self._told_s = services.clock.monotonic_s()

    def matching(self, topic_filter: str) -> list[ApplicationMessage]:
        """The messages of now whose topics the filter matches."""
        if not topic_filter.startswith("$SYS"):
            return []
        return [one for one in self._messages() if filter_matches(topic_filter, one.topic)]

    def tell(self) -> None:
        """Tell the counts to those who subscribed to them, if it is time."""
        now_s = self._services.clock.monotonic_s()
        if now_s - self._told_s >= SYSTEM_INTERVAL_S:
            self._told_s = now_s
            for message in self._messages():
                self._services.subscriptions.spread(message)

    def _messages(self) -> list[ApplicationMessage]:
        services = self._services
        counts = {
            "version": f"millstream {__version__}",
            "clients/connected": services.traffic.sessions,
            "subscriptions/count": len(services.subscriptions),
            "retained messages/count": len(services.retained),
            "messages/received": services.traffic.messages_in,
            "messages/sent": services.traffic.messages_out,
            "publish/messages/dropped": services.traffic.dropped,
            "bytes/received": services.statistics.bytes_received,
            "bytes/sent": services.statistics.bytes_sent,
        }
        return [
            ApplicationMessage(_PREFIX + name, str(value).encode(), 0, retain=True) for name, value in counts.items()
        ]
