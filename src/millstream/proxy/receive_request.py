"""What a client wants when it receives."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.filter import ALL, MessageFilter

__all__ = ["MAX_RECEIVE_MESSAGES", "ReceiveRequest"]

MAX_RECEIVE_MESSAGES = 32
"""Messages of one receive at most; larger wishes are cut."""


@dataclass(slots=True)
class ReceiveRequest:
    """A wish for messages. `invisible_ms` None asks the proxy to keep them out of sight while the client lives."""

    client_id: str
    group: str
    topic: str
    broker_name: str
    invisible_ms: int | None
    queue_id: int | None = None
    max_messages: int = MAX_RECEIVE_MESSAGES
    filter: MessageFilter = ALL
    wait_ms: int = 0
    attempt_id: str = ""
