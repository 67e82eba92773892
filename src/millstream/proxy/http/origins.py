"""Which web pages may use the HTTP port from a browser: those of its own origin, and of the origins that it is told.

A browser sends requests for the pages of any site, some of them with the secret of its user, and names the page's
origin in the header Origin. Sources: RFC 6454; the Fetch standard, "CORS protocol".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from millstream.model.errors import Refused, StartRefused
from millstream.proxy.http.answer import HttpAnswer, Send

__all__ = ["MAX_ASKED_FIELDS_BYTES", "PREFLIGHT_AGE_S", "Origins", "add_fields", "preflight_answer"]

PREFLIGHT_AGE_S: Final = 600
"""Seconds for which a browser may keep the answer to its question what a page may send."""

MAX_ASKED_FIELDS_BYTES: Final = 4_096
"""Bytes of the names of header fields in such a question at most."""

_ALL: Final = "*"
_ORIGIN: Final = re.compile(r"https?://[a-z0-9._\-\[\]:]+")
_FIELD_NAMES: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, \-]*")
_ASKED_METHOD: Final = "access-control-request-method"
_ASKED_FIELDS: Final = "access-control-request-headers"

Fields = Sequence[tuple[bytes, bytes]]


class Origins:
    """`allowed` are origins as a browser names them, https://shop.example:8443, or `*` for all. StartRefused with
    ILLEGAL_SETTING."""

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        for one in allowed:
            if one != _ALL and not _ORIGIN.fullmatch(one.lower()):
                words = f"http_origins: {one[:200]!r} is no origin, such as https://shop.example:8443, and not *."
                raise StartRefused("ILLEGAL_SETTING", words)
        self._allowed = frozenset(one.lower() for one in allowed)

    def fields_for(self, headers: Mapping[str, str]) -> Fields:
        """What the answer says to the browser of a page that is not the port's own; nothing to others. HTTP_ORIGIN for
        a page that may not use the port."""
        origin = headers.get("origin")
        if origin is None:
            return ()
        host, asked = headers.get("host", ""), origin.lower()
        if asked in self._allowed:
            return (
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-allow-credentials", b"true"),
                (b"access-control-expose-headers", b"retry-after"),
                (b"vary", b"origin"),
            )
        if _ALL in self._allowed:
            # Browsers send no secret by themselves to whoever says so.
            return (b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", b"retry-after")
        if asked.partition("://")[2] == host.lower():
            return ()
        raise Refused("HTTP_ORIGIN", f"A page of {origin[:200]!r} uses the port as {host[:200]!r}.")


def preflight_answer(headers: Mapping[str, str], methods: Sequence[str]) -> HttpAnswer | None:
    """The answer to a browser that asks what a page may send; None where it is no such question."""
    if _ASKED_METHOD not in headers:
        return None
    asked = headers.get(_ASKED_FIELDS, "")
    if len(asked) > MAX_ASKED_FIELDS_BYTES or not _FIELD_NAMES.fullmatch(asked):
        raise Refused("HTTP_REQUEST", f"{_ASKED_FIELDS} is {asked[:80]!r}, which are no names of header fields.")
    fields = [
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        (b"access-control-max-age", b"%d" % PREFLIGHT_AGE_S),
    ]
    if asked:
        # Events have header fields of any name.
        fields.append((b"access-control-allow-headers", asked.encode("ascii")))
    return HttpAnswer(204, headers=fields)


def add_fields(send: Send, fields: Fields) -> Send:
    """A `send` whose answers have these header fields as well."""

    async def send_more(message: Mapping[str, object]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *fields]}  # type: ignore[misc]
        await send(message)

    return send_more
