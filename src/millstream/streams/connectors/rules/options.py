"""The connector `rules`: rule hits over a topic, and the internal topic of packed hits."""

from __future__ import annotations

from typing import Final

from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.options import Option, duration, text
from millstream.streams.connectors.rocketmq.options import TOPIC_METADATA, TOPIC_OPTIONS
from millstream.streams.plan.hits import HIT_COLUMNS

__all__ = ["HITS_TOPIC", "ORIGIN_OPTION", "PACKED_HITS", "RULES"]

HITS_TOPIC: Final = "hits.topic"
"""The option of a table of hits that asks for a topic between the judging and what keeps state over hits."""

ORIGIN_OPTION: Final = "origin"
"""The option that names the job whose packed hits count: what an earlier one left in the topic does not."""

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

_OPTIONS: tuple[Option, ...] = (
    *(option for option in TOPIC_OPTIONS if option.name in _AS_OF_TOPICS),
    text("store", "Directory of the rules, as `millstream rules` makes it.", required=True, wanted="a path"),
    text("event-time.field", "Fields with an event's time, joined by ;, the first that is there; else its store time."),
    text(HITS_TOPIC, "Topic through which hits go, packed, to a query of their own where state is kept over them."),
    duration("call-allowance", "How long a user function may hold a worker.", "60 s"),
)

RULES = Connector(
    "rules",
    _OPTIONS,
    TOPIC_METADATA,
    reads=True,
    columns=HIT_COLUMNS,
    job_source="millstream.streams.connectors.rules.source:RulesSource",
    gives_hits=True,
)

PACKED_HITS = Connector(
    "packed-hits", (), reads=True, job_source="millstream.streams.connectors.rules.source:PackedHitsSource"
)
"""Hits that another query of the job has packed; no user declares such a table."""
