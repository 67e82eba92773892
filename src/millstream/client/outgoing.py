"""A message's way from the application into a request: its id and its properties.

The id is RocketMQ's unique key, 16 bytes as upper-case hex: IPv4 address, low 16 bits of the process id, 4 bytes that
differ between processes, milliseconds since the month began (UTC), and a counter. Source: RocketMQ 5.3's
MessageClientIDSetter (facts only).
"""

from __future__ import annotations

import os
import socket
import time

from millstream.model import properties as names
from millstream.model.errors import MessageRefused
from millstream.model.message import Message

__all__ = ["MessageIds", "outgoing_properties"]

_ANY_ADDRESS = ("192.0.2.1", 9)
"""An address of the documentation range: connecting a datagram socket sends nothing but finds our own address."""


class MessageIds:
    """Makes unique keys; also right after a fork, where parent and child would else make the same ones."""

    def __init__(self) -> None:
        self._process = -1
        self._prefix = ""
        self._counter = 0
        self._month_start_ms = 0
        self._month_end_ms = 0

    def next(self) -> str:
        """The next id, 32 hex digits."""
        process = os.getpid()
        if process != self._process:
            self._process = process
            start = _own_address() + (process & 0xFFFF).to_bytes(2, "big") + os.urandom(4)
            self._prefix = start.hex().upper()
            self._counter = int.from_bytes(os.urandom(2), "big")
        now_ms = time.time_ns() // 1_000_000
        if now_ms >= self._month_end_ms:
            self._begin_month()
        self._counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix}{now_ms - self._month_start_ms & 0xFFFFFFFF:08X}{self._counter:04X}"

    def _begin_month(self) -> None:
        today = time.gmtime()
        days_before, seconds_today = today.tm_mday - 1, today.tm_hour * 3600 + today.tm_min * 60 + today.tm_sec
        start_s = int(time.time()) - seconds_today - days_before * 86_400
        self._month_start_ms = start_s * 1000
        # 28 days at least; asking again before the month's end is harmless.
        self._month_end_ms = (start_s + max(28, today.tm_mday) * 86_400) * 1000


def _own_address() -> bytes:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(_ANY_ADDRESS)
            return socket.inet_aton(probe.getsockname()[0])
    except OSError:
        return socket.inet_aton("127.0.0.1")


def outgoing_properties(message: Message, message_id: str) -> dict[str, str]:
    """The properties as stored: the reserved ones first, then the application's own.

    Refuses (ILLEGAL_PROPERTY) a reserved name and the characters that separate properties; the rest is the broker's
    to judge.
    """
    held = {names.UNIQUE_KEY: message_id, "WAIT": "true"}
    names.put_sorting_properties(
        held, message.tag, message.keys, message.message_group, message.priority, message.lite_topic
    )
    if message.delivery_timestamp_ms is not None:
        held[names.DELIVERY_TIME_MS] = str(message.delivery_timestamp_ms)
    user = message.user_properties
    if user:
        for name in user:
            if name in names.RESERVED:
                raise MessageRefused("ILLEGAL_PROPERTY", f"{name!r} is a reserved name, not one for a user property.")
        held.update(user)
    text = "".join(held) + "".join(held.values())
    if "\x01" in text or "\x02" in text:
        raise MessageRefused(
            "ILLEGAL_PROPERTY", "A tag, key or property has one of the characters \\x01 and \\x02, which separate them."
        )
    if not text.isascii() and not _is_unicode(text):
        raise MessageRefused("ILLEGAL_PROPERTY", "A tag, key or property is not Unicode (half of a pair).")
    return held


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
