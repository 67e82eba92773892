"""Bodies by which a proxy tells a broker its clients' lite subscriptions, and learns which of them were lost.

Not RocketMQ's, whose brokers know no lite topics before 5.4.
"""

from __future__ import annotations

from millstream.model.errors import MessageRefused
from millstream.model.lite import LiteAction, LiteStart, LiteStartKind, LiteSync
from millstream.protocol.remoting.bodies import CamelBody, decode_body, encode_body

__all__ = ["decode_lite_losses", "decode_lite_sync", "encode_lite_losses", "encode_lite_sync"]


class _Sync(CamelBody):
    client_id: str
    group: str
    topic: str
    action: str
    lite_topics: list[str]
    start: str
    start_value: int


class _Losses(CamelBody):
    losses: list[tuple[str, str]]


def encode_lite_sync(request: LiteSync) -> bytes:
    """The body that tells it."""
    return encode_body(
        _Sync(
            request.client_id,
            request.group,
            request.topic,
            request.action.name,
            list(request.lite_topics),
            request.start.kind.value,
            request.start.value,
        )
    )


def decode_lite_sync(body: bytes) -> LiteSync:
    """What such a body tells; MESSAGE_MALFORMED where it cannot be read."""
    sync = decode_body(_Sync, body)
    try:
        action, start = LiteAction[sync.action], LiteStart(LiteStartKind(sync.start), sync.start_value)
    except (KeyError, ValueError) as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"A lite subscription cannot be read: {error}.") from None
    return LiteSync(sync.client_id, sync.group, sync.topic, action, tuple(sync.lite_topics), start)


def encode_lite_losses(pairs: list[tuple[str, str]]) -> bytes:
    """The body that answers with pairs of client and lite topic whose subscription ended."""
    return encode_body(_Losses(pairs))


def decode_lite_losses(body: bytes) -> list[tuple[str, str]]:
    """The pairs of such a body; MESSAGE_MALFORMED where it cannot be read."""
    return decode_body(_Losses, body).losses
