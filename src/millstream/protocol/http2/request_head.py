"""Validates the headers of a request (RFC 9113, sections 8.2 and 8.3) and extracts their meaning."""

from __future__ import annotations

import re
from typing import Final

from millstream.protocol.http2.hpack import Header

__all__ = ["HeadMalformed", "RequestHead", "read_request_head", "read_trailers"]

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
_FORBIDDEN_IN_VALUE: Final = re.compile(r"[\0\r\n]|\A[ \t]|[ \t]\Z")
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_OF_CONNECTION: Final = frozenset(("connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"))
_PSEUDO_HEADERS: Final = frozenset((":method", ":scheme", ":path", ":authority"))
_MAX_LENGTH_DIGITS: Final = 18
_MAX_SHOWN: Final = 80

_MAX_KNOWN_NAMES: Final = 512
_MAX_KNOWN_NAME_BYTES: Final = 64

_known_names: Final[set[str]] = set()
"""Names of late that need no look but at their values; at most `_MAX_KNOWN_NAMES`."""


class HeadMalformed(ValueError):
    """A request is malformed by its headers: its stream ends with PROTOCOL_ERROR."""


class RequestHead:
    """Who is asked for what. `metadata` has the other headers by name; `content_length` is in bytes if there is one.

    CONNECT has neither scheme nor path; both are empty then.
    """

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
    """The head of a request; HeadMalformed if RFC 9113 calls it so.

    Its metadata is text: names that end in "-bin", and values with more than the printable characters of ASCII, are
    left out. Of headers with one name the last counts.
    """
    pseudo: dict[str, str] = {}
    count = 0
    for name, value in headers:
        if name[:1] != ":":
            break
        if name not in _PSEUDO_HEADERS:
            raise HeadMalformed(f"a request has no pseudo-header {name[:_MAX_SHOWN]!r}")
        if name in pseudo:
            raise HeadMalformed(f"{name} is there twice")
        pseudo[name] = value
        count += 1
    metadata = _read_regular(headers[count:], _check_values(headers))
    digits = metadata.get("content-length")
    length = None if digits is None else int(digits)
    authority = pseudo.get(":authority")
    if authority is None:
        authority = metadata.get("host", "")
    elif "host" in metadata and metadata["host"].lower() != authority.lower():
        raise HeadMalformed("host and :authority differ")
    method, scheme, path = pseudo.get(":method"), pseudo.get(":scheme"), pseudo.get(":path")
    if method == "CONNECT":
        if scheme is not None or path is not None or ":authority" not in pseudo:
            raise HeadMalformed("CONNECT needs an :authority, and no :scheme and no :path")
        return RequestHead(method, "", "", authority, metadata, length)
    if not method or not scheme or not path:
        raise HeadMalformed("a request needs a :method, a :scheme and a :path")
    return RequestHead(method, scheme, path, authority, metadata, length)


def read_trailers(headers: list[Header]) -> dict[str, str]:
    """The text of what stands behind a request, as in its metadata; HeadMalformed for what cannot stand there."""
    return _read_regular(headers, _check_values(headers))


def _check_values(headers: list[Header]) -> bool:
    """Whether all values are text, printable characters of ASCII; HeadMalformed if one has what no value can have."""
    values = [value for _, value in headers]
    text = "\n".join(values)
    # All at once, because a look at each would cost as much as the decoding.
    if (
        text.isascii()
        and text.encode("ascii").translate(None, _PRINTABLE) == b"\n" * (len(values) - 1)
        and not (text[:1] == " " or text[-1:] == " " or " \n" in text or "\n " in text)
    ):
        return True
    for name, value in headers:
        if _FORBIDDEN_IN_VALUE.search(value) is not None:
            raise HeadMalformed(f"the value of {name[:_MAX_SHOWN]!r} has a character that must not be there")
    return False


def _read_regular(headers: list[Header], are_text: bool) -> dict[str, str]:
    metadata: dict[str, str] = {}
    known = _known_names
    for name, value in headers:
        if name not in known and not _check_header(name, value, metadata):
            continue
        if are_text or (value.isascii() and value.isprintable()):
            metadata[name] = value
    return metadata


def _check_header(name: str, value: str, metadata: dict[str, str]) -> bool:
    """Whether a header with a name that is not known belongs to the metadata; HeadMalformed if it must not be there."""
    if name == "te":
        if value != "trailers":
            raise HeadMalformed(f"te is {value[:_MAX_SHOWN]!r}, not trailers")
        return True
    if name == "content-length":
        if not (value.isascii() and value.isdecimal() and len(value) <= _MAX_LENGTH_DIGITS):
            raise HeadMalformed(f"content-length is {value[:_MAX_SHOWN]!r}")
        if metadata.get(name, value) != value:
            raise HeadMalformed("content-length is there twice and differs")
        return True
    if name in _OF_CONNECTION:
        raise HeadMalformed(f"{name} is of HTTP/1.1")
    if name[:1] == ":":
        raise HeadMalformed(f"the pseudo-header {name[:_MAX_SHOWN]!r} is behind others or in trailers")
    if _TOKEN.fullmatch(name) is None:
        raise HeadMalformed(f"{name[:_MAX_SHOWN]!r} is no name of a header")
    if name[-4:] == "-bin":
        return False
    if len(name) <= _MAX_KNOWN_NAME_BYTES:
        if len(_known_names) >= _MAX_KNOWN_NAMES:
            _known_names.clear()
        _known_names.add(name)
    return True
