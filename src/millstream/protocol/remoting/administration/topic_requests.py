"""Requests about topics. Source of the names: RocketMQ 5.3 (facts only); `createOnly` is our own."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.protocol.remoting.request import Request, flag_field, text_field

__all__ = ["StaticTopicChange", "TopicCreation", "TopicQuery", "TopicStatistics"]


@dataclass(frozen=True, slots=True)
class TopicQuery(Request):
    """Codes 215, 300 and 351: one topic."""

    topic: str = text_field("topic")


@dataclass(frozen=True, slots=True)
class TopicStatistics(Request):
    """Code 202: what the queues of a topic hold."""

    topic: str = text_field("topic")
    is_logic: bool = flag_field("lo")
    """Whether it means the logic queues of a static topic."""


@dataclass(frozen=True, slots=True)
class TopicCreation(Request):
    """Code 17, beside the topic's settings."""

    topic: str = text_field("topic", "")
    create_only: bool = flag_field("createOnly")
    """Whether a topic with other settings is to be refused."""
    is_physical: bool = flag_field("lo", "false")
    """Whether it means the broker's own queues, also of a static topic."""


@dataclass(frozen=True, slots=True)
class StaticTopicChange(Request):
    """Code 513, beside the topic's settings and its mapping."""

    force: bool = flag_field("force")
    """Whether a mapping is taken that does not follow from the one that is there."""
