"""Topic aliases: numbers that stand for topic names on one connection (MQTT 5.0, section 3.3.2.3.4). Pure."""

from __future__ import annotations

from typing import Final

from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.reason_codes import ReasonCode

__all__ = ["NO_ALIASES", "IncomingAliases", "OutgoingAliases"]


class IncomingAliases:
    """Those that the client gives, 1 to `limit`."""

    __slots__ = ("_topics", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._topics: dict[int, str] | None = None
        """None until there are some: most clients give none."""

    def resolve(self, topic: str, alias: int | None) -> str:
        """The topic of a PUBLISH, whose alias stands for it from now on. TOPIC_ALIAS_INVALID for an alias that may not
        be, PROTOCOL_ERROR for one that stands for nothing, TOPIC_NAME_INVALID where there is neither."""
        if alias is None:
            if not topic:
                raise PacketRefused(ReasonCode.TOPIC_NAME_INVALID, "PUBLISH has no topic and no topic alias.")
            return topic
        if not 1 <= alias <= self.limit:
            words = f"The topic alias {alias} is outside of 1 to {self.limit}."
            raise PacketRefused(ReasonCode.TOPIC_ALIAS_INVALID, words)
        if topic:
            if self._topics is None:
                self._topics = {}
            self._topics[alias] = topic
            return topic
        known = None if self._topics is None else self._topics.get(alias)
        if known is None:
            raise PacketRefused(ReasonCode.PROTOCOL_ERROR, f"The topic alias {alias} stands for no topic.")
        return known


class OutgoingAliases:
    """Those that the server gives, 1 to `limit`: to the topics that come first, for as long as the connection lasts."""

    __slots__ = ("_aliases", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._aliases: dict[str, int] = {}

    def assign(self, topic: str) -> tuple[str, int | None]:
        """What PUBLISH says of a topic: its name or a blank, and its alias or None."""
        alias = self._aliases.get(topic)
        if alias is not None:
            return "", alias
        if len(self._aliases) >= self.limit:
            return topic, None
        alias = self._aliases[topic] = len(self._aliases) + 1
        return topic, alias


NO_ALIASES: Final = OutgoingAliases(0)
"""For all clients that want none."""
