"""Which topic of the brokers holds the messages of an MQTT topic: rules of the proxy's configuration, the first that
fits.

As text: `factory/#=telemetry`. Without a rule that fits, the topic is `mqtt`. All proxies of a cluster need the same
rules: a subscriber looks for messages where a publisher puts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from millstream.model.errors import NameRefused, StartRefused
from millstream.model.topic import check_topic_name as check_broker_topic
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.topics import check_topic_filter, filter_matches

__all__ = ["DEFAULT_TOPIC", "TopicRule", "TopicRules", "may_overlap", "parse_topic_rule"]

DEFAULT_TOPIC: Final = "mqtt"
"""The topic that holds what no rule fits."""


_KEPT_TOPICS: Final = 8192


@dataclass(frozen=True, slots=True)
class TopicRule:
    """The messages of MQTT topics that the filter matches are in `topic`."""

    topic_filter: str
    topic: str


def parse_topic_rule(text: str) -> TopicRule:
    """The rule of a text. Raises ILLEGAL_SETTING."""
    topic_filter, mark, topic = text.strip().rpartition("=")
    try:
        if not mark:
            raise ValueError(text)
        check_topic_filter(topic_filter)
        check_broker_topic(topic)
    except (ValueError, PacketRefused, NameRefused):
        words = f"mqtt_topics: {text[:200]!r} is no rule like factory/#=telemetry."
        raise StartRefused("ILLEGAL_SETTING", words) from None
    return TopicRule(topic_filter, topic)


class TopicRules:
    """The rules in their order, and the default behind them."""

    def __init__(self, rules: Sequence[TopicRule] = ()) -> None:
        self._rules = (*rules, TopicRule("#", DEFAULT_TOPIC))
        self.topic_of = lru_cache(maxsize=_KEPT_TOPICS)(self._find)
        """The topic that holds the messages of an MQTT topic."""
        self.topics_for = lru_cache(maxsize=_KEPT_TOPICS)(self._find_for)
        """The topics that may hold messages which a filter of a subscription matches, each once."""

    def _find(self, mqtt_topic: str) -> str:
        fitting = (rule.topic for rule in self._rules if filter_matches(rule.topic_filter, mqtt_topic))
        return next(fitting, DEFAULT_TOPIC)

    def _find_for(self, topic_filter: str) -> tuple[str, ...]:
        found = (rule.topic for rule in self._rules if may_overlap(rule.topic_filter, topic_filter))
        return tuple(dict.fromkeys(found))


def may_overlap(one: str, other: str) -> bool:
    """Whether some topic name matches both filters."""
    left, right = one.split("/"), other.split("/")
    for position in range(max(len(left), len(right))):
        mine = left[position] if position < len(left) else None
        yours = right[position] if position < len(right) else None
        if mine == "#" or yours == "#":
            return True
        if mine is None or yours is None:
            return False
        if mine != yours and "+" not in (mine, yours):
            return False
    return True
