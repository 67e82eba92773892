"""What the HTTP port says to browsers whose pages may use it: header fields of CORS, and what pages may send.

Source: the Fetch standard, "CORS protocol".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from millstream.model.errors import Refused
from millstream.proxy.http.answer import HttpAnswer, Send
from millstream.security.web_origins import PageOrigin

__all__ = ["MAX_ASKED_FIELDS_BYTES", "PREFLIGHT_AGE_S", "add_fields", "cors_fields", "preflight_answer"]

PREFLIGHT_AGE_S: Final = 600
"""Seconds for which a browser may keep the answer to its question what a page may send."""

MAX_ASKED_FIELDS_BYTES: Final = 4_096
"""Bytes of the names of header fields in such a question at most."""

_FIELD_NAMES: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, \-]*")
_ASKED_METHOD: Final = "access-control-request-method"
_ASKED_FIELDS: Final = "access-control-request-headers"

Fields = Sequence[tuple[bytes, bytes]]


def cors_fields(page: PageOrigin, headers: Mapping[str, str]) -> Fields:
    """What the answer says to the browser of a page that was let in; nothing where it is the port's own, or none."""
    if page is PageOrigin.TOLD:
        return (
            (b"access-control-allow-origin", headers["origin"].encode("latin-1")),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", b"retry-after"),
            (b"vary", b"origin"),
        )
    if page is PageOrigin.ANY:
        # Browsers send no secret by themselves to whoever says so.
        return (b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", b"retry-after")
    return ()


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
