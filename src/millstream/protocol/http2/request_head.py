"""The headers of a request, checked as RFC 9113 demands (sections 8.2 and 8.3)."""

from __future__ import annotations

import re
from typing import Final

from millstream.protocol.http2.hpack import Header

__all__ = ["HeadMalformed", "RequestHead", "read_request_head", "read_trailers"]

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
_FORBIDDEN: Final = frozenset(("connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"))
"""Headers of a connection of HTTP/1.1, which mean nothing here."""

_PSEUDO: Final = frozenset((":method", ":scheme", ":path", ":authority"))
_MAX_KNOWN_NAMES: Final = 1024
_MAX_LENGTH_DIGITS: Final = 18
_known_names: set[str] = set()


class HeadMalformed(ValueError):
    """Headers that are no request's: the stream ends."""


class RequestHead:
    """Who is asked for what. `metadata` has the headers as text; of several with one name the last."""

    __slots__ = ("authority", "content_length", "metadata", "method", "path", "scheme")

    def __init__(
        self, method: str, scheme: str, path: str, authority: str, metadata: dict[str, str], content_length: int | None
    ) -> None:
        self.method = method
        self.scheme = scheme
        self.path = path
        self.authority = authority
        self.metadata = metadata
        self.content_length = content_length


def read_request_head(headers: list[Header]) -> RequestHead:
    """The head of a request. Binary headers (`-bin`) and such with bytes beyond ASCII are left out of the metadata."""
    pseudo: dict[str, str] = {}
    metadata: dict[str, str] = {}
    known = _known_names
    for name, value in headers:
        if name[:1] == ":":
            if metadata or name in pseudo or name not in _PSEUDO:
                raise HeadMalformed(f"the pseudo-header {name!r} must not be here")
            pseudo[name] = value
            continue
        if name not in known:
            _check_name(name)
        if not value.isprintable() or not value.isascii():
            _check_value(name, value)
            if not value.isascii():
                # It counts as a header: pseudo-headers must not follow it.
                metadata.setdefault("", "")
                continue
        elif value and (value[0] == " " or value[-1] == " "):
            raise HeadMalformed(f"the value of {name} begins or ends with a space")
        if name == "te" and value != "trailers":
            raise HeadMalformed(f"te is {value[:40]!r}, not trailers")
        if name[-4:] == "-bin":
            metadata.setdefault("", "")
            continue
        metadata[name] = value
    metadata.pop("", None)
    method, scheme, path = pseudo.get(":method"), pseudo.get(":scheme"), pseudo.get(":path")
    if method is None or scheme is None or not path:
        raise HeadMalformed("a request needs a method, a scheme and a path")
    length = metadata.get("content-length")
    return RequestHead(
        method, scheme, path, pseudo.get(":authority", ""), metadata, None if length is None else _length(length)
    )


def read_trailers(headers: list[Header]) -> None:
    """Check the headers behind a request."""
    for name, value in headers:
        if name[:1] == ":":
            raise HeadMalformed(f"the pseudo-header {name!r} stands behind the request")
        _check_name(name)
        _check_value(name, value)


def _length(text: str) -> int:
    if not text.isdecimal() or len(text) > _MAX_LENGTH_DIGITS:
        raise HeadMalformed(f"content-length is {text[:40]!r}")
    return int(text)


def _check_name(name: str) -> None:
    if name in _FORBIDDEN:
        raise HeadMalformed(f"the header {name} is one of HTTP/1.1")
    if _NAME.fullmatch(name) is None:
        raise HeadMalformed(f"{name[:80]!r} is no name of a header")
    if len(_known_names) < _MAX_KNOWN_NAMES and len(name) <= 80:
        _known_names.add(name)


def _check_value(name: str, value: str) -> None:
    if "\0" in value or "\r" in value or "\n" in value or (value and (value[0] in " \t" or value[-1] in " \t")):
        raise HeadMalformed(f"the value of {name} has characters that a header cannot have")
