"""Which web pages may use ports from a browser: those of the port's own origin, and of the origins that it is told.

A browser sends requests, and opens WebSockets, for the pages of any site, and names the page's origin in the header
Origin. Source: RFC 6454.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from millstream.model.errors import Refused, StartRefused

__all__ = ["PageOrigin", "WebOrigins"]

_ALL: Final = "*"
_ORIGIN: Final = re.compile(r"https?://[a-z0-9._\-\[\]:]+")


class PageOrigin(Enum):
    """Why a request is let in."""

    NONE = "no page asks"
    OWN = "the port's own"
    TOLD = "one that was told by its name"
    ANY = "all are let in"


class WebOrigins:
    """`allowed` are origins as a browser names them, https://shop.example:8443, or `*` for all. StartRefused with
    ILLEGAL_SETTING."""

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        for one in allowed:
            if one != _ALL and not _ORIGIN.fullmatch(one.lower()):
                words = f"http_origins: {one[:200]!r} is no origin, such as https://shop.example:8443, and not *."
                raise StartRefused("ILLEGAL_SETTING", words)
        self._allowed = frozenset(one.lower() for one in allowed)

    def admit(self, headers: Mapping[str, str]) -> PageOrigin:
        """Why a request with these header fields, their names in lower case, is let in; HTTP_ORIGIN where a page asks
        that may not."""
        origin = headers.get("origin")
        if origin is None:
            return PageOrigin.NONE
        host, asked = headers.get("host", ""), origin.lower()
        if asked in self._allowed:
            return PageOrigin.TOLD
        if _ALL in self._allowed:
            return PageOrigin.ANY
        if asked.partition("://")[2] == host.lower():
            return PageOrigin.OWN
        raise Refused("HTTP_ORIGIN", f"A page of {origin[:200]!r} uses the port as {host[:200]!r}.")
