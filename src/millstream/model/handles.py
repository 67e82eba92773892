"""Handles that clients return: receipt handles of deliveries, and recall handles of delayed messages."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Self

from millstream.model.errors import ConsumeRefused, MessageRefused

__all__ = ["FIFO_REVIVE_QUEUE", "NO_LOG_OFFSET", "RecallHandle", "ReceiptHandle"]


FIFO_REVIVE_QUEUE = 999
"""Stands in the place of the revive queue in the handles of FIFO groups."""

NO_LOG_OFFSET = -1
"""Stands for the log offset in the handle of a client that does not know it."""

_WORDS = 9
_MAX_CHARACTERS = 512


@dataclass(slots=True, unsafe_hash=True)
class ReceiptHandle:
    """One delivery of one message: where it lies, when it was taken and for how long.

    Times are milliseconds since 1970. `queue_offset` counts messages, `log_offset` bytes.
    """

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    topic_kind: int
    broker_name: str
    queue_id: int
    queue_offset: int
    log_offset: int
    lite_topic: str = ""

    @property
    def expires_ms(self) -> int:
        """When the message becomes visible again."""
        return self.pop_time_ms + self.invisible_ms

    def encode(self) -> str:
        """The text that clients keep; the broker's name must be free of blanks."""
        text = (
            f"{self.start_offset} {self.pop_time_ms} {self.invisible_ms} {self.revive_queue} {self.topic_kind} "
            f"{self.broker_name} {self.queue_id} {self.queue_offset}"
        )
        if self.lite_topic:
            return f"{text} {self.log_offset} {self.lite_topic}"
        return text if self.log_offset == NO_LOG_OFFSET else f"{text} {self.log_offset}"

    @classmethod
    def decode(cls, text: str) -> ReceiptHandle:
        """The handle of a text that a client sent; refused (INVALID_RECEIPT_HANDLE) unless its words fit."""
        words = text.split(" ") if len(text) <= _MAX_CHARACTERS else []
        try:
            before, broker, after = words[:5], words[5], words[6:_WORDS]
            start, popped, invisible, revive, kind = map(int, before)
            queue, queue_offset, *known = map(int, after)
            log_offset = known[0] if known else NO_LOG_OFFSET
            lite_topic = words[_WORDS] if len(words) > _WORDS else ""
            if len(words) > _WORDS + bool(lite_topic):
                raise ValueError(text)
            return cls(start, popped, invisible, revive, kind, broker, queue, queue_offset, log_offset, lite_topic)
        except (ValueError, IndexError):
            raise ConsumeRefused(
                "INVALID_RECEIPT_HANDLE", f"{text[:80]!r} is no receipt handle ({_WORDS} words, or one more or less)."
            ) from None


_VERSION = "v1"
_RECALL_WORDS = 5


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """A delayed message of a broker."""

    topic: str
    broker_name: str
    due_ms: int
    message_id: str

    def encode(self) -> str:
        """The text that a client passes on unread."""
        words = (_VERSION, self.topic, self.broker_name, str(self.due_ms), self.message_id)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()

    @classmethod
    def decode_for(cls, topic: str, text: str) -> Self:
        """The handle of a text that must be of that topic. Raises ILLEGAL_RECALL_HANDLE."""
        handle = cls.decode(text)
        if handle.topic != topic:
            raise MessageRefused(
                "ILLEGAL_RECALL_HANDLE", f"The handle is of the topic {handle.topic[:200]!r}, not of {topic!r}."
            )
        return handle

    @classmethod
    def decode(cls, text: str) -> Self:
        """The handle of a text. Raises ILLEGAL_RECALL_HANDLE."""
        try:
            words = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ")
            if len(words) != _RECALL_WORDS or words[0] != _VERSION:
                raise ValueError
            return cls(words[1], words[2], int(words[3]), words[4])
        except (binascii.Error, ValueError):
            raise MessageRefused("ILLEGAL_RECALL_HANDLE", f"{text[:200]!r} is no recall handle.") from None
