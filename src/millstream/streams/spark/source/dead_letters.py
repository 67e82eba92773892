"""Malformed messages: spooled by workers, counted by the driver, sent to a topic."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from millstream.model.message import Message
from millstream.streams.spark.source.position import Slice
from millstream.streams.spark.source.topic_log import Access, TopicLog, open_log
from millstream.streams.state.spool import Spool

__all__ = ["DeadLetters", "MalformedMessage", "MalformedWriter", "Refusals", "malformed_spool"]


@dataclass(frozen=True, slots=True)
class MalformedMessage:
    """A message that is no row of its table."""

    queue: str
    """The queue that it lies in: `broker/queue id`."""

    queue_offset: int
    """Its offset there."""

    reason: str
    """Why it is no row."""

    body: bytes
    """Its body; blank where malformed messages are only counted."""


def malformed_spool(directory: Path) -> Spool[MalformedMessage]:
    """The malformed messages of one table; a file for each slice that has any."""
    return Spool(directory, ".malformed", MalformedMessage)


class MalformedWriter:
    """Writes the malformed messages of one slice; a second read of the slice writes the same file again."""

    def __init__(self, directory: str, part: Slice, *, keep_bodies: bool) -> None:
        self._file = malformed_spool(Path(directory)).file(f"{part.queue}-{part.start}-{part.end}")
        self._queue = part.queue
        self._keep_bodies = keep_bodies

    def add(self, queue_offset: int, reason: str, body: bytes | memoryview) -> None:
        """Leave one message."""
        kept = bytes(body) if self._keep_bodies else b""
        self._file.add(MalformedMessage(self._queue, queue_offset, reason, kept))

    def finish(self) -> None:
        """Complete the file; to be called at the slice's end."""
        self._file.finish()


_BLANK_BODY = b" "
"""Stands for an empty body, which no topic takes."""

_MESSAGES_PER_SEND = 1_000
"""Messages that are in memory at once."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """How many messages of a micro-batch were malformed, and why the first of them was; blank where none was."""

    count: int = 0
    reason: str = ""


@dataclass(frozen=True)
class DeadLetters:
    """Empties a spool. `topic` None only counts.

    `table` is the table that is read, `remedy` what a user does who sees none of its rows.
    """

    spool: Spool[MalformedMessage]
    source_topic: str
    topic: str | None
    nameserver: str
    timeout_s: float
    access: Access | None = None
    table: str = ""
    remedy: str = ""

    def deliver(self) -> Refusals:
        """The malformed messages; all are in the topic when this returns. A replay sends them again."""
        count, reason = 0, ""
        log: TopicLog | None = None
        found = self.spool.take()
        try:
            while messages := list(islice(found, _MESSAGES_PER_SEND)):
                count += len(messages)
                reason = reason or messages[0].reason
                if self.topic is not None:
                    if log is None:
                        log = open_log(self.nameserver, timeout_s=self.timeout_s, access=self.access)
                        log.ensure_topic(self.topic)
                    log.send([self._letter(message, self.topic) for message in messages])
        finally:
            if log is not None:
                log.close()
        return Refusals(count, reason)

    def trouble(self, reason: str) -> str:
        """What is told while every message is malformed, the first for `reason`."""
        words = (
            f"No row of {self.source_topic} fits the table {self.table}; the first is refused: {_printable(reason)}."
        )
        return " ".join(filter(None, (words, self.remedy)))

    def _letter(self, message: MalformedMessage, topic: str) -> Message:
        broker, _, queue_id = message.queue.rpartition("/")
        properties = {
            "reason": _printable(message.reason),
            "source_topic": self.source_topic,
            "source_broker": broker,
            "source_queue_id": queue_id,
            "source_queue_offset": str(message.queue_offset),
        }
        return Message(topic, message.body or _BLANK_BODY, user_properties=properties)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
