"""Authentication and authorization of HTTP requests."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from millstream.proxy.http.request import HttpRequest
from millstream.security.guard import Guard
from millstream.security.policy import RequiredAccess

__all__ = ["HttpGate"]

_BASIC = "basic"


class HttpGate:
    """Lets requests through that `guard` allows; None lets everybody in, whatever the headers say.

    Users show their access key and secret key by Basic, or sign the header x-mq-date-time as over gRPC.
    """

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return self._guard is None

    def is_super(self, user: str) -> bool:
        """Whether the user may do everything."""
        return self._guard is None or self._guard.is_super(user)

    def enter(self, request: HttpRequest, action: str) -> None:
        """Note in the request whose it is; UNAUTHORIZED."""
        if self._guard is None:
            return
        header, peer = request.headers.get("authorization", ""), request.peer.host
        scheme, _, given = header.partition(" ")
        if scheme.lower() == _BASIC:
            name, secret = _credentials(given)
            request.user = self._guard.caller_of_secret(name, secret, peer=peer, action=action)
        else:
            date_time = request.headers.get("x-mq-date-time", "")
            request.user = self._guard.caller_of_headers(header, date_time, peer=peer, action=action)

    def allow(self, request: HttpRequest, action: str, wishes: Iterable[RequiredAccess]) -> None:
        """Return if the user of the request may do all of it; ACCESS_DENIED, UNAUTHORIZED."""
        if self._guard is not None:
            self._guard.allow(request.user, wishes, peer=request.peer.host, action=action)


def _credentials(text: str) -> tuple[str, bytes]:
    """The user and the secret of Basic (RFC 7617); blank ones where it cannot be read."""
    try:
        name, _, secret = base64.b64decode(text.strip().encode(), validate=True).partition(b":")
        return name.decode(), secret
    except (binascii.Error, ValueError):
        return "", b""
