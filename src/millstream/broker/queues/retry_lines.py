"""Splits a group's retry topic by original topic, so that each original topic is popped on its own."""

from __future__ import annotations

from dataclasses import replace

from millstream.model import properties as names
from millstream.model.message import OutgoingMessage, StoredMessage
from millstream.model.topic import RETRY_PREFIX

__all__ = ["RETRY_KIND", "is_of", "origin_of", "restore_topic", "retry_line", "stored_topic"]

RETRY_KIND = 1
"""The kind of topic in the receipt handles of what was taken from the retry topic."""

_LINE_MARK = "+"
"""No topic's name has it."""


def retry_line(group: str, topic: str) -> str:
    """The name of the group's ledger for messages of the topic in the retry topic: each topic is popped for itself."""
    return f"{RETRY_PREFIX}{group}{_LINE_MARK}{topic}"


def stored_topic(place: str) -> str:
    """The topic in whose queues the messages of a ledger lie."""
    return place.partition(_LINE_MARK)[0]


def is_of(place: str, topic: str) -> bool:
    """Whether what a ledger of that name holds is gone with the topic: its messages lie there, or are of it."""
    return topic in (place, *place.split(_LINE_MARK))


def origin_of(message: StoredMessage | OutgoingMessage) -> str:
    """The topic that the message was first sent to."""
    return message.properties.get(names.RETRY_TOPIC) or message.topic


def restore_topic(message: StoredMessage) -> StoredMessage:
    """A message of a retry topic under the name of its own topic."""
    return replace(message, topic=origin_of(message))
