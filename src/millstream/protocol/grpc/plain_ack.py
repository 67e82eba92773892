"""A direct codec for ordinary AckMessage requests and their responses, without protobuf messages.

An entry of a request and that of its answer begin with the same two fields, so the answer repeats what came. A handle
is ordinary where it has the nine words that a broker gives for a message of a topic's own queue. All else is left to
protobuf's own decoder; a test holds both to the same.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.wire import VARINTS, tag

__all__ = ["PlainAck", "PlainDelivery", "encode_ack_answer", "handle_of", "read_plain_ack"]

PlainDelivery = tuple[int, int, int]
"""Queue, queue offset and pop time (ms)."""

PlainAck = tuple[str, str, list[bytes], list[PlainDelivery]]
"""Group, topic, the bytes of the entries, and what their handles name."""

_GROUP: Final = 0x0A
_TOPIC: Final = 0x12
_ENTRY: Final = 0x1A
_NAME: Final = 0x12
_MESSAGE_ID: Final = 0x0A
_HANDLE: Final = 0x12
_ONE_BYTE: Final = 0x80
"""Lengths below it have one byte."""

_IS_COMPILED: Final = not __file__.endswith(".py")
_SPACE: Final = 0x20
_ZERO: Final = 0x30
_LONG: Final = 18
_SHORT: Final = 9
"""Digits of the numbers of a handle at most."""

_match_handle = re.compile(
    rb"[0-9]{1,18} ([0-9]{1,18}) [0-9]{1,18} [0-9]{1,9} 0 ([!-~]+) ([0-9]{1,9}) ([0-9]{1,18}) [0-9]{1,18}"
).fullmatch

_ANSWER_STATUS: Final = tag(m.AckMessageResponse, "status")
_ANSWER_ENTRY: Final = tag(m.AckMessageResponse, "entries")
_ENTRY_STATUS: Final = tag(m.AckMessageResultEntry, "status")


def read_plain_ack(raw: bytes, broker_name: bytes, max_entries: int) -> PlainAck | None:
    """What an ordinary request acknowledges at a broker; None where the general decoder has to look."""
    try:
        return _read_request(raw, broker_name, max_entries)
    except (IndexError, UnicodeDecodeError):
        return None


def _read_request(raw: bytes, broker_name: bytes, max_entries: int) -> PlainAck | None:  # noqa: C901 - a case for each field
    size = len(raw)
    group = topic = ""
    entries: list[bytes] = []
    deliveries: list[PlainDelivery] = []
    at = 0
    while at < size:
        field = raw[at]
        length = raw[at + 1]
        at += 2
        if length >= _ONE_BYTE:
            more = raw[at]
            if more >= _ONE_BYTE:
                return None
            length = length & 0x7F | more << 7
            at += 1
        end = at + length
        if end > size:
            return None
        if field == _ENTRY:
            entry = raw[at:end]
            # With lengths of one byte all of it is ASCII, and so are id and handle.
            if not entry.isascii():
                return None
            if entry[0] == _MESSAGE_ID:
                at += 2 + entry[1]
            if at + 2 > end or raw[at] != _HANDLE or raw[at + 1] != end - at - 2:
                return None
            delivery = _read_handle(raw, at + 2, end, broker_name)
            if delivery is None:
                return None
            entries.append(entry)
            deliveries.append(delivery)
        elif field == _GROUP and not group:
            group = _read_name(raw, at, end)
        elif field == _TOPIC and not topic:
            topic = _read_name(raw, at, end)
        else:
            return None
        at = end
    if not group or not topic or not 0 < len(entries) <= max_entries:
        return None
    return group, topic, entries, deliveries


def _read_name(raw: bytes, at: int, end: int) -> str:
    """The name of a resource without a namespace; blank for others."""
    if end - at < 2 or raw[at] != _NAME or raw[at + 1] != end - at - 2:
        return ""
    return raw[at + 2 : end].decode()


def _read_handle(raw: bytes, at: int, end: int, broker_name: bytes) -> PlainDelivery | None:
    """What an ordinary handle of a broker names."""
    if not _IS_COMPILED:
        words = _match_handle(raw, at, end)
        if words is None or words[2] != broker_name:
            return None
        return int(words[3]), int(words[4]), int(words[1])
    # Digit by digit, which in C costs less than the objects of a match.
    _, at = _read_number(raw, at, end, _LONG)
    popped, at = _read_number(raw, at, end, _LONG)
    _, at = _read_number(raw, at, end, _LONG)
    _, at = _read_number(raw, at, end, _SHORT)
    broker_end = at + 2 + len(broker_name)
    if at < 0 or broker_end >= end or raw[at] != _ZERO or raw[at + 1] != _SPACE or raw[broker_end] != _SPACE:
        return None
    if raw[at + 2 : broker_end] != broker_name:
        return None
    queue, at = _read_number(raw, broker_end + 1, end, _SHORT)
    offset, at = _read_number(raw, at, end, _LONG)
    _, at = _read_number(raw, at, end, _LONG)
    return (queue, offset, popped) if at == end and raw[end - 1] != _SPACE else None


def _read_number(raw: bytes, at: int, end: int, digits: int) -> tuple[int, int]:
    """A number of at most so many digits, and where the next word begins: behind a space, or at the end. -1 as a place
    where no number stands, and from there on."""
    if at < 0:
        return 0, -1
    start, value, last = at, 0, min(end, at + digits)
    while at < last:
        digit = raw[at] - _ZERO
        if not 0 <= digit <= 9:
            break
        value = value * 10 + digit
        at += 1
    if at == start:
        return 0, -1
    if at == end:
        return value, at
    if raw[at] != _SPACE:
        return 0, -1
    return value, at + 1


def handle_of(entry: bytes) -> str:
    """The receipt handle of an entry that `read_plain_ack` gave."""
    start = 4 + entry[1] if entry[0] == _MESSAGE_ID else 2
    return entry[start:].decode()


def encode_ack_answer(status: bytes, entries: list[bytes], statuses: list[bytes]) -> bytes:
    """The answer to a plain request: the status of all, then each entry as it came with a status of its own."""
    parts = [_ANSWER_STATUS, VARINTS[len(status)], status]
    last = end = b""
    for number, entry in enumerate(entries):
        own = statuses[number]
        if own is not last:
            last = own
            end = b"".join((_ENTRY_STATUS, VARINTS[len(own)], own))
        parts += (_ANSWER_ENTRY, VARINTS[len(entry) + len(end)], entry, end)
    return b"".join(parts)
