"""The body of a stored message as its sender gave it, for protocols that know no packed bodies."""

from __future__ import annotations

from millstream.model.message import StoredMessage
from millstream.protocol.content_fields import filled_body
from millstream.proxy.grpc.message_encoder import plain_body

__all__ = ["body_of"]


def body_of(message: StoredMessage) -> bytes:
    """The body, unpacked where its producer packed it, and of no bytes where it stands for none."""
    return filled_body(message.properties, plain_body(message))
