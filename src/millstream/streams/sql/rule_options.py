"""Options of tables whose rows are the hits of rules over a topic."""

from __future__ import annotations

from millstream.streams.sql.options import Option, duration, text
from millstream.streams.sql.topic_options import TOPIC_OPTIONS

__all__ = ["RULE_OPTIONS"]

_AS_OF_TOPICS = (
    "topic",
    "nameserver",
    "access-key",
    "secret-key",
    "tls",
    "scan.max-rows-per-trigger",
    "tag",
    "consumer.group",
    "dead-letter.topic",
    "late.topic",
    "scan.startup.mode",
    "scan.startup.group-offsets.reset",
    "scan.startup.timestamp-millis",
    "scan.startup.specific-offsets",
    "scan.watermark.idle-timeout",
)

RULE_OPTIONS: tuple[Option, ...] = (
    *(option for option in TOPIC_OPTIONS if option.name in _AS_OF_TOPICS),
    text("store", "Directory of the rules, as `millstream rules` makes it.", required=True, wanted="a path"),
    text("event-time.field", "Fields with an event's time, joined by ;, the first that is there; else its store time."),
    text("hits.topic", "Topic through which hits go, packed, to a query of their own where state is kept over them."),
    duration("call-allowance", "How long a user function may hold a worker.", "60 s"),
)
"""Those of the connector 'rules'."""
