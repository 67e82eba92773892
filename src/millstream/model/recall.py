"""The recall handle of a delayed message: what its sender needs to take it back.

Text: URL-safe base64 of `v1 TOPIC BROKER DELIVER_MS MESSAGE_ID`. Source: RocketMQ 5.3 (facts only).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Self

from millstream.model.errors import MessageRefused

__all__ = ["RecallHandle"]

_VERSION = "v1"
_WORDS = 5


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
            if len(words) != _WORDS or words[0] != _VERSION:
                raise ValueError
            return cls(words[1], words[2], int(words[3]), words[4])
        except (binascii.Error, ValueError):
            raise MessageRefused("ILLEGAL_RECALL_HANDLE", f"{text[:200]!r} is no recall handle.") from None
