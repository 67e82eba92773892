"""Options that several connectors have: of tables that lookup joins ask, and of sinks whose rows may be refused."""

from __future__ import annotations

from typing import Final

from millstream.streams.connectors.options import Option, choice, duration, flag, text

__all__ = ["CHANGES_OPTIONS", "DEAD_LETTER_OPTIONS", "DEAD_LETTER_TOPIC", "LOOKUP_OPTIONS"]

DEAD_LETTER_TOPIC: Final = "sink.dead-letter.topic"

LOOKUP_OPTIONS: tuple[Option, ...] = (
    choice("lookup.store", "How rows for lookups are kept: in each worker, or once per machine as a dimension table; default: dimension where the whole table is kept, and for large files.", "dimension", "plain"),
    flag("lookup.verify", "Whether a dimension table keeps its keys and compares them, beyond their 128-bit hashes."),
    flag("lookup.full-scan", "Whether a condition without any index may compare each row with the whole table."),
)  # fmt: skip
"""Those of every table that can become a dimension table."""

CHANGES_OPTIONS: tuple[Option, ...] = (
    text("lookup.changes.topic", "Topic with the changes of the table, which bring a dimension table up to date between its loads."),
    choice("lookup.changes.format", "What its messages are: rows as JSON, with the primary key as JSON in the message's key, where a message without a body deletes; or Debezium's envelopes.", "json", "debezium-json", default="json"),
    text("lookup.changes.nameserver", "Nameserver of that topic; default: that of the session."),
    duration("lookup.changes.interval", "How often a dimension table looks for new changes.", "10 s"),
    text("lookup.changes.access-key", "Who reads that topic; default: MILLSTREAM_ACCESS_KEY of the environment."),
    Option("lookup.changes.secret-key", "Their secret, best as ${env:NAME}.", pattern=r"(?s).*", wanted="a text", secret=True),
    text("lookup.changes.tls", "As 'tls' of the connector 'rocketmq'.", wanted="a path, or system"),
)  # fmt: skip
"""Those of files and tables of a database whose changes are in a topic."""

DEAD_LETTER_OPTIONS: tuple[Option, ...] = (
    text(DEAD_LETTER_TOPIC, "Topic for rows that are refused for good; default: the job ends.",
         pattern=r"[%|a-zA-Z0-9_-]{1,127}", wanted="a legal topic name (letters, digits, _ - % |)"),
    text("nameserver", "Nameserver of that topic; default: the session's.", wanted="host:port",
         pattern=r"[^\s:;]+:\d{1,5}(;[^\s:;]+:\d{1,5})*"),
)  # fmt: skip
"""What connectors with such rows declare."""
