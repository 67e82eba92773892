"""Commands that a server sends to a client over its open stream, and the replies; independent of the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millstream.model.message import StoredMessage

__all__ = [
    "NotifyUnsubscribeLite",
    "PrintThreadStackTrace",
    "ReconnectEndpoints",
    "RecoverOrphanedTransaction",
    "ServerCommand",
    "VerifyMessage",
    "VerifyOutcome",
    "size_bytes_of",
]

COMMAND_OVERHEAD_BYTES = 512
"""What a command counts beside the body of its message."""


@dataclass(frozen=True, slots=True)
class RecoverOrphanedTransaction:
    """Ask a producer how a transaction ended. `message` names the topic that it is meant for."""

    message: StoredMessage
    transaction_id: str


@dataclass(frozen=True, slots=True)
class PrintThreadStackTrace:
    """Ask a client what its threads do. The answer comes with the same nonce."""

    nonce: str


@dataclass(frozen=True, slots=True)
class VerifyMessage:
    """Ask a consumer to consume a message as a trial. The answer comes with the same nonce."""

    nonce: str
    message: StoredMessage


@dataclass(frozen=True, slots=True)
class ReconnectEndpoints:
    """Ask a client to connect again, as before a stop of the server. No answer."""

    nonce: str


@dataclass(frozen=True, slots=True)
class NotifyUnsubscribeLite:
    """Tell a consumer that another one has taken the lite topic over. No answer."""

    lite_topic: str


ServerCommand = (
    RecoverOrphanedTransaction | PrintThreadStackTrace | VerifyMessage | ReconnectEndpoints | NotifyUnsubscribeLite
)


class VerifyOutcome(Enum):
    """What became of a message that a consumer was asked to verify."""

    CONSUMED = "consumed"
    FAILED = "failed"
    CORRUPTED = "corrupted"
    NOT_SUPPORTED = "not supported"


def size_bytes_of(command: ServerCommand) -> int:
    """About how much memory the command takes while it waits."""
    if isinstance(command, RecoverOrphanedTransaction | VerifyMessage):
        return len(command.message.body) + COMMAND_OVERHEAD_BYTES
    return COMMAND_OVERHEAD_BYTES
