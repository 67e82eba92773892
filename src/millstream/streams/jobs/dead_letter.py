"""Malformed messages at the end of a micro-batch: counted, and sent to a topic where they can be looked at."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.message import Message
from millstream.streams.spark.source.malformed import MalformedMessage, Spool
from millstream.streams.spark.source.topic_log import Access, TopicLog, open_log

__all__ = ["DeadLetters"]

_BLANK_BODY = b" "
"""Stands for an empty body, which no topic takes."""


@dataclass(frozen=True)
class DeadLetters:
    """Empties a spool. `topic` None only counts."""

    spool: Spool
    source_topic: str
    topic: str | None
    nameserver: str
    timeout_s: float
    access: Access | None = None

    def deliver(self) -> int:
        """How many messages were malformed; all are in the topic when this returns. A replay sends them again."""
        files = self.spool.files()
        if not files:
            return 0
        log: TopicLog | None = None
        count = 0
        try:
            for file in files:
                messages = self.spool.read(file)
                count += len(messages)
                if self.topic is not None:
                    if log is None:
                        log = open_log(self.nameserver, timeout_s=self.timeout_s, access=self.access)
                        log.ensure_topic(self.topic)
                    log.send([self._letter(message, self.topic) for message in messages])
                file.unlink()
        finally:
            if log is not None:
                log.close()
        return count

    def _letter(self, message: MalformedMessage, topic: str) -> Message:
        broker, _, queue_id = message.queue.rpartition("/")
        properties = {
            "reason": "".join(character if character.isprintable() else " " for character in message.reason),
            "source_topic": self.source_topic,
            "source_broker": broker,
            "source_queue_id": queue_id,
            "source_queue_offset": str(message.queue_offset),
        }
        return Message(topic, message.body or _BLANK_BODY, user_properties=properties)
