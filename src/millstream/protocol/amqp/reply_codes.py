"""Reply codes of AMQP 0-9-1 (specification, 1.4), and the errors that close a channel or a connection."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["MAX_REPLY_BYTES", "AmqpFailure", "ChannelFailure", "ConnectionFailure", "ReplyCode"]

MAX_REPLY_BYTES: Final = 255
"""Bytes of a reply text at most: it is a short string."""


class ReplyCode(IntEnum):
    """The numbers of the specification; those up to 406 end a channel, the others the connection."""

    REPLY_SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


class AmqpFailure(Exception):
    """What a peer is told. `words` say what happened with the values; `text` is the reply text, cut to its limit."""

    def __init__(self, code: ReplyCode, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words

    @property
    def text(self) -> str:
        """The reply text in RabbitMQ's form, `NOT_FOUND - no queue ...`."""
        text = f"{self.code.name} - {self.words}".encode()
        return text[:MAX_REPLY_BYTES].decode(errors="ignore")


class ChannelFailure(AmqpFailure):
    """The channel ends; the connection and its other channels go on."""


class ConnectionFailure(AmqpFailure):
    """The connection ends."""
