"""Maps refusals by brokers and access control to AMQP errors."""

from __future__ import annotations

from typing import Final

from millstream.model.errors import AccessRefused, ConnectionFailed, MillstreamError, NameRefused
from millstream.protocol.amqp.reply_codes import AmqpFailure, ChannelFailure, ReplyCode

__all__ = ["channel_failure"]

_CODES: Final = {
    "BODY_TOO_LARGE": ReplyCode.CONTENT_TOO_LARGE,
    "PROPERTIES_TOO_LARGE": ReplyCode.CONTENT_TOO_LARGE,
    "TOPIC_NOT_FOUND": ReplyCode.NOT_FOUND,
    "GROUP_NOT_FOUND": ReplyCode.NOT_FOUND,
}


def channel_failure(error: MillstreamError) -> AmqpFailure:
    """The failure of the channel whose method was refused."""
    code = _CODES.get(error.name)
    if code is None:
        if isinstance(error, AccessRefused):
            code = ReplyCode.ACCESS_REFUSED
        elif isinstance(error, ConnectionFailed):
            code = ReplyCode.RESOURCE_ERROR
        elif isinstance(error, NameRefused):
            code = ReplyCode.NOT_FOUND
        else:
            code = ReplyCode.PRECONDITION_FAILED
    return ChannelFailure(code, f"{error.message} [{error.label}]")
