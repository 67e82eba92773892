"""The body of a stored message as its sender gave it, for protocols that know no packed bodies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from millstream.model.message import StoredMessage, SystemFlag
from millstream.protocol.content_fields import filled_body
from millstream.proxy.grpc.message_encoder import MAX_UNPACKED_BYTES, light_body, plain_body
from millstream.transport.heavy_work import HEAVY_WORK

__all__ = ["body_of", "is_packed", "unpack"]

_COMPRESSED = int(SystemFlag.COMPRESSED)


def body_of(message: StoredMessage) -> bytes:
    """The body, unpacked where its producer packed it, and of no bytes where it stands for none."""
    return filled_body(message.properties, plain_body(message))


def is_packed(message: StoredMessage) -> bool:
    """Whether `unpack` has something to do."""
    return bool(int(message.system_flag) & _COMPRESSED)


async def unpack(message: StoredMessage) -> StoredMessage:
    """The message with a plain body, which a thread unpacks where that takes long. Raises TOO_MANY_REQUESTS.

    A body that cannot be unpacked stays as it is stored.
    """
    if not is_packed(message):
        return message
    body = light_body(message)
    if body is None:
        body = await HEAVY_WORK.run(MAX_UNPACKED_BYTES, partial(plain_body, message))
    return replace(message, body=body, system_flag=SystemFlag(int(message.system_flag) & ~_COMPRESSED))
