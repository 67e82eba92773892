"""The ordinary SendMessage request, read from its bytes without a protobuf message: one message with a topic, a body,
an id, and perhaps a tag, keys and properties of its user.

All else (several messages, other types, namespaces, what is malformed) is left to protobuf's own decoder, which says
what is wrong. A request that is read here is read the same there; a test holds both to it.
"""

from __future__ import annotations

from typing import Final

from millstream.model.properties import (
    BORN_HOST,
    BORN_TIMESTAMP,
    KEYS,
    PRODUCER_GROUP,
    TAGS,
    UNIQUE_KEY,
)

__all__ = ["GZIP", "PlainSend", "read_plain_send"]

PlainSend = tuple[str, dict[str, str], bytes, int, int, int]
"""Topic, properties as they are stored, body, born time (ms), encoding of the body, and how many of the properties are
the user's."""

GZIP: Final = 2
"""The encoding of a compressed body."""

# Tags (number and wire type) of the fields, all with numbers below 16 and so of one byte.
_MESSAGES: Final = 0x0A
_TOPIC: Final = 0x0A
_USER_PROPERTY: Final = 0x12
_SYSTEM: Final = 0x1A
_BODY: Final = 0x22
_NAME: Final = 0x12
_ENTRY_NAME: Final = 0x0A
_ENTRY_VALUE: Final = 0x12
_TAG: Final = 0x0A
_KEY: Final = 0x12
_MESSAGE_ID: Final = 0x1A
_DIGEST: Final = 0x22
_ENCODING: Final = 0x28
_TYPE: Final = 0x30
_BORN_TIME: Final = 0x3A
_BORN_HOST: Final = 0x42
_QUEUE_ID: Final = 0x68
_SECONDS: Final = 0x08
_NANOS: Final = 0x10
_PLAIN_TYPES: Final = 2
"""Types below it are not said (0) and NORMAL (1)."""

_MAX_LENGTH_BYTES: Final = 4
_MAX_SECONDS_BYTES: Final = 6
"""Bytes of a varint with the seconds of a time: until the year 140,000."""


def read_plain_send(raw: bytes) -> PlainSend | None:
    """The message of an ordinary request; None where the general decoder has to look."""
    try:
        return _read_request(raw)
    except (IndexError, UnicodeDecodeError):
        return None


def _read_request(raw: bytes) -> PlainSend | None:  # noqa: C901 - a case for each field
    size = len(raw)
    if raw[0] != _MESSAGES:
        return None
    length, at = _read_number(raw, 1, _MAX_LENGTH_BYTES)
    if at < 0 or at + length != size:
        return None
    topic = body = system = None
    user: dict[str, str] = {}
    while at < size:
        field = raw[at]
        length, at = _read_number(raw, at + 1, _MAX_LENGTH_BYTES)
        end = at + length
        if at < 0 or end > size:
            return None
        if field == _BODY and body is None:
            body = raw[at:end]
        elif field == _SYSTEM and system is None:
            system = _read_system(raw, at, end)
            if system is None:
                return None
        elif field == _TOPIC and topic is None:
            topic = _read_name(raw, at, end)
        elif field != _USER_PROPERTY or not _read_entry(raw, at, end, user):
            return None
        at = end
    if not topic or not body or system is None:
        return None
    message_id, tag, keys, born_ms, born_host, encoding = system
    held = {UNIQUE_KEY: message_id}
    if tag is not None:
        held[TAGS] = tag
    if keys:
        held[KEYS] = " ".join(keys)
    held[PRODUCER_GROUP] = topic
    if born_host:
        held[BORN_HOST] = born_host
    held[BORN_TIMESTAMP] = str(born_ms)
    if user:
        if not user.keys().isdisjoint(held):
            return None
        held.update(user)
    return topic, held, body, born_ms, encoding, len(user)


_System = tuple[str, str | None, list[str], int, str, int]


def _read_system(raw: bytes, at: int, end: int) -> _System | None:  # noqa: C901 - a case for each field
    """Id, tag, keys, born time, born host and encoding of system properties that an ordinary message has."""
    message_id = born_host = ""
    tag: str | None = None
    keys: list[str] = []
    born_ms = encoding = 0
    while at < end:
        field = raw[at]
        length = raw[at + 1]
        at += 2
        if field == _TYPE:
            if length >= _PLAIN_TYPES:
                return None
            continue
        if field == _ENCODING:
            if length > GZIP:
                return None
            encoding = length
            continue
        if field == _QUEUE_ID:
            # The official Java client names the queue that it would take; the broker chooses, as on the general way.
            if length >= 0x80:
                _, at = _read_number(raw, at - 1, _MAX_LENGTH_BYTES)
                if at < 0:
                    return None
            continue
        if length >= 0x80:
            length, at = _read_number(raw, at - 1, _MAX_LENGTH_BYTES)
        behind = at + length
        if at < 0 or behind > end:
            return None
        if field == _MESSAGE_ID:
            message_id = raw[at:behind].decode()
        elif field == _BORN_TIME and not born_ms:
            born_ms = _read_time_ms(raw, at, behind)
            if born_ms < 0:
                return None
        elif field == _BORN_HOST:
            born_host = raw[at:behind].decode()
        elif field == _TAG:
            tag = raw[at:behind].decode()
        elif field == _KEY:
            key = raw[at:behind].decode()
            # Stored keys are parted by blanks.
            if not key or " " in key:
                return None
            keys.append(key)
        elif field != _DIGEST or not _is_digest(raw, at, behind):
            return None
        at = behind
    if at != end or not message_id or message_id.isspace():
        return None
    return message_id, tag, keys, born_ms, born_host, encoding


def _read_name(raw: bytes, at: int, end: int) -> str:
    """The name of a resource without a namespace; blank for others."""
    if end - at < 2 or raw[at] != _NAME or raw[at + 1] != end - at - 2:
        return ""
    return raw[at + 2 : end].decode()


def _read_number(raw: bytes, at: int, most_bytes: int) -> tuple[int, int]:
    """The varint at a place, and what follows it; a place below 0 where it has more bytes."""
    value = shift = 0
    for place in range(at, at + most_bytes):
        byte = raw[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    return 0, -1


def _read_entry(raw: bytes, at: int, end: int, user: dict[str, str]) -> bool:
    """Take an entry of a map: a name, then a value. Whether it is one of the ordinary form."""
    if end - at < 2 or raw[at] != _ENTRY_NAME:
        return False
    length, at = _read_number(raw, at + 1, _MAX_LENGTH_BYTES)
    behind = at + length
    if at < 0 or end - behind < 2 or raw[behind] != _ENTRY_VALUE:
        return False
    name = raw[at:behind].decode()
    length, at = _read_number(raw, behind + 1, _MAX_LENGTH_BYTES)
    if at < 0 or at + length != end:
        return False
    user[name] = raw[at:end].decode()
    return True


def _read_time_ms(raw: bytes, at: int, end: int) -> int:
    """Milliseconds of a point in time; below 0 where it is of another form."""
    seconds = nanos = 0
    if at < end and raw[at] == _SECONDS:
        seconds, at = _read_number(raw, at + 1, _MAX_SECONDS_BYTES)
        if at < 0:
            return -1
    if at < end and raw[at] == _NANOS:
        nanos, at = _read_number(raw, at + 1, 5)
        if at < 0 or nanos >= 1_000_000_000:
            return -1
    return seconds * 1000 + nanos // 1_000_000 if at == end else -1


def _is_digest(raw: bytes, at: int, end: int) -> bool:
    """Whether it has the form of a checksum: nothing of it is kept."""
    if at < end and raw[at] == 0x08:
        if raw[at + 1] >= 0x80:
            return False
        at += 2
    if at < end and raw[at] == 0x12:
        length, at = _read_number(raw, at + 1, _MAX_LENGTH_BYTES)
        if at < 0 or at + length > end or not raw[at : at + length].isascii():
            return False
        at += length
    return at == end
