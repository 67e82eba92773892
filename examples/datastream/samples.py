"""Rows for the examples: each becomes a message of a topic."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig

NAMESERVER = os.environ.get("MILLSTREAM_NAMESERVER", "127.0.0.1:9876")
"""Where `millstream quickstart` listens."""


def send(topic: str, rows: Iterable[Mapping[str, object]], *, outputs: Iterable[str] = ()) -> None:
    """Send the rows, if the topic is not there yet; it is made, and so are the topics of `outputs`."""
    with BlockingClient(NAMESERVER) as client:
        known = {config.name for config in client.topics()}
        for name in (topic, *outputs):
            if name not in known:
                client.create_topic(TopicConfig(name, read_queues=1, write_queues=1))
        if topic not in known:
            for row in rows:
                client.send(Message(topic, json.dumps(row).encode()))
