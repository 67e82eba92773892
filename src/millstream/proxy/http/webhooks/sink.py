"""The sink of a subscription: the validation handshake, and the post of one event."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from millstream.model.errors import ConnectionFailed, Refused
from millstream.model.message import StoredMessage
from millstream.protocol.cloud_events import STRUCTURED_TYPE, binary_headers, encode_event, event_attributes
from millstream.proxy.http.webhooks.subscription import WebhookSubscription
from millstream.proxy.stored_body import body_of, unpack
from millstream.transport.http_caller import HttpReply, OutboundCaller

__all__ = ["HANDSHAKE_LIMIT_S", "MAX_RATE", "Sink", "allowed_rate"]

HANDSHAKE_LIMIT_S: Final = 10.0
"""Seconds in which a sink must answer whether it wants events."""

MAX_RATE: Final = 1_000_000
"""Events a minute that a sink may name at most; a larger number is no bound."""

_ANY: Final = "*"
_ORIGIN: Final = "webhook-allowed-origin"
_RATE: Final = "webhook-allowed-rate"


class Sink:
    """Calls sinks; `origin` is the name by which they know this server."""

    def __init__(self, caller: OutboundCaller, origin: str) -> None:
        self._caller = caller
        self._origin = origin

    async def shake_hands(self, wanted: WebhookSubscription) -> int:
        """Events a minute that the sink takes, 0 for any number. Raises SINK_REFUSED where it takes none."""
        headers = [("WebHook-Request-Origin", self._origin), ("WebHook-Request-Rate", _ANY)]
        try:
            reply = await self._caller.call(
                "OPTIONS", wanted.sink, [*headers, *_own_headers(wanted)], limit_s=HANDSHAKE_LIMIT_S
            )
        except ConnectionFailed as error:
            raise Refused("SINK_REFUSED", f"The sink does not answer OPTIONS: {error.message}") from None
        origin = reply.headers.get(_ORIGIN, "").strip()
        if not HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES or origin not in (_ANY, self._origin):
            raise Refused(
                "SINK_REFUSED",
                f"The sink answered OPTIONS with {reply.status} and WebHook-Allowed-Origin {origin[:80]!r}, "
                f"not with {_ANY} or {self._origin}.",
            )
        return allowed_rate(reply.headers.get(_RATE))

    async def post(self, wanted: WebhookSubscription, message: StoredMessage) -> HttpReply:
        """Post one event. Raises what the call raises."""
        message = await unpack(message)
        attributes, body = event_attributes(message), body_of(message)
        if wanted.config.mode == "structured":
            headers: Sequence[tuple[str, str]] = [("content-type", STRUCTURED_TYPE)]
            body = encode_event(attributes, body)
        else:
            headers = binary_headers(attributes)
        origin = ("WebHook-Request-Origin", self._origin)
        return await self._caller.call("POST", wanted.sink, [origin, *_own_headers(wanted), *headers], body)


def _own_headers(wanted: WebhookSubscription) -> list[tuple[str, str]]:
    return list(wanted.protocolsettings.headers.items())


def allowed_rate(text: str | None) -> int:
    """Events a minute of a WebHook-Allowed-Rate header; 0, for any number, without one or for `*`."""
    stripped = (text or "").strip()
    if not stripped.isascii() or not stripped.isdecimal() or len(stripped) > len(str(MAX_RATE)):
        return 0
    rate = int(stripped)
    return 0 if rate > MAX_RATE else rate
