"""Retained messages, kept in a compacted topic of the brokers.

In memory are the names, as a tree of levels, with the offsets of their records; a payload is read when it is wanted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from millstream.model.clock import Clock
from millstream.model.errors import ConsumeRefused, MessageRefused, StoreError
from millstream.model.escaped_names import escape_name, unescape_name
from millstream.model.state_topics import MQTT_RETAINED_TOPIC
from millstream.protocol.mqtt.decoding import decode_publish
from millstream.protocol.mqtt.encoding import encode_publish
from millstream.protocol.mqtt.errors import PacketRefused
from millstream.protocol.mqtt.frames import PacketFrames
from millstream.protocol.mqtt.packet_types import ProtocolVersion
from millstream.protocol.mqtt.packets import Publish
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.mqtt.application_message import ApplicationMessage
from millstream.proxy.state_topics import StateTopic

__all__ = ["MAX_RETAINED", "MAX_RETAINED_BYTES", "RetainedMessages"]

MAX_RETAINED: Final = 1_000_000
"""Topics with a retained message at most."""

MAX_RETAINED_BYTES: Final = 1024 * 1024
"""Bytes of the payload of a retained message at most."""

_V5: Final = ProtocolVersion.V5
_HEAD: Final = struct.Struct(">QH")
"""When the message expires (0: never), and how long the client id behind it is; the PUBLISH follows."""
_MAX_VALUE_BYTES: Final = 2 * MAX_RETAINED_BYTES
_KEY_CHARACTERS: Final = 4096
_ONE, _REST = "+", "#"


class _Level:
    """One level of the names: what is retained here, and the levels below."""

    __slots__ = ("below", "expires_ms", "offset")

    def __init__(self) -> None:
        self.below: dict[str, _Level] = {}
        self.offset = -1
        self.expires_ms = 0


class RetainedMessages:
    """Of all proxies. `start` before use, `close` after; all from one event loop."""

    def __init__(self, backend: BrokerBackend, clock: Clock) -> None:
        self._clock = clock
        self._topic = StateTopic(backend, MQTT_RETAINED_TOPIC, clock=clock)
        self._topic.listen(self._apply, self._forget)
        self._root = _Level()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def start(self) -> None:
        """Begin to follow what is retained."""
        await self._topic.start()

    async def close(self) -> None:
        """Follow it no more."""
        await self._topic.close()

    def check(self, message: ApplicationMessage) -> None:
        """Refuse a message that cannot be retained: BODY_TOO_LARGE, TOO_MANY_REQUESTS."""
        size_bytes = len(message.payload)
        if size_bytes > MAX_RETAINED_BYTES:
            words = f"A retained payload has {size_bytes} bytes; the limit is {MAX_RETAINED_BYTES}."
            raise MessageRefused("BODY_TOO_LARGE", words)
        if size_bytes and self._count >= MAX_RETAINED:
            raise ConsumeRefused("TOO_MANY_REQUESTS", f"{MAX_RETAINED} topics have a retained message: the limit.")

    async def keep(self, message: ApplicationMessage) -> None:
        """Have the message for its topic, or, with no payload, none [MQTT-3.3.1-6]. Raises what storing raises.

        Returns when subscriptions at this proxy find it.
        """
        key = _key(message.topic)
        if message.payload:
            offset = await self._topic.put(key, _encode(message))
        else:
            offset = await self._topic.delete(key)
        await self._topic.reach(offset)

    async def find(self, topic_filter: str) -> list[int]:
        """The offsets of what is retained for the topics that the filter matches, in the order of their storing."""
        await self._topic.ready()
        now_ms = self._clock.now_ms()
        found = [
            level.offset
            for level in _matching(self._root, topic_filter.split("/"))
            if level.offset >= 0 and not 0 < level.expires_ms <= now_ms
        ]
        return sorted(found)

    async def read(self, offset: int) -> ApplicationMessage | None:
        """The message of that offset; None where another one took its place, or its time is over."""
        data = await self._topic.read(offset)
        message = None if data is None else _decode(data)
        return None if message is None or message.is_expired(self._clock.now_ms()) else message

    def _apply(self, key: str, value: bytes | None, offset: int) -> None:
        topic = unescape_name(key)
        if value is not None:
            try:
                expires_ms = _HEAD.unpack_from(value)[0]
                topic = topic if topic is not None else _decode(value).topic
            except (struct.error, StoreError):
                return
        if topic is None:
            return
        if value is None:
            self._remove(topic.split("/"))
            return
        level = self._root
        for name in topic.split("/"):
            below = level.below.get(name)
            if below is None:
                below = level.below[name] = _Level()
            level = below
        self._count += level.offset < 0
        level.offset, level.expires_ms = offset, expires_ms

    def _remove(self, names: list[str]) -> None:
        way = [self._root]
        for name in names:
            below = way[-1].below.get(name)
            if below is None:
                return
            way.append(below)
        self._count -= way[-1].offset >= 0
        way[-1].offset = -1
        for number in range(len(names), 0, -1):
            if way[number].below or way[number].offset >= 0:
                return
            del way[number - 1].below[names[number - 1]]

    def _forget(self) -> None:
        self._root, self._count = _Level(), 0


def _matching(root: _Level, wanted: list[str]) -> Iterator[_Level]:
    """The levels that the filter ends at, retained or not. No wildcard in front stands for a level with `$`."""
    waiting = [(root, 0)]
    while waiting:
        level, depth = waiting.pop()
        if depth == len(wanted):
            yield level
            continue
        name = wanted[depth]
        if name not in (_ONE, _REST):
            if name in level.below:
                waiting.append((level.below[name], depth + 1))
            continue
        below = [one for first, one in level.below.items() if depth or not first.startswith("$")]
        if name == _ONE:
            waiting += [(one, depth + 1) for one in below]
            continue
        if depth:
            # `a/#` has `a` as well.
            yield level
        for one in below:
            yield from _all_below(one)


def _all_below(level: _Level) -> Iterator[_Level]:
    waiting = [level]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.below.values()


def _key(topic: str) -> str:
    return escape_name(topic, _KEY_CHARACTERS)


def _encode(message: ApplicationMessage) -> bytes:
    publisher = message.publisher.encode()
    packet = Publish(
        message.topic, message.payload, message.qos, True, False, 1 if message.qos else 0, message.properties
    )
    return _HEAD.pack(message.expires_ms or 0, len(publisher)) + publisher + encode_publish(packet, _V5)


def _decode(data: bytes) -> ApplicationMessage:
    """The message of a value; RECORD_DAMAGED."""
    try:
        expires_ms, length = _HEAD.unpack_from(data)
        start = _HEAD.size + length
        ((first, body),) = PacketFrames(_MAX_VALUE_BYTES).feed(data[start:])
        packet = decode_publish(first, body, _V5)
        publisher = data[_HEAD.size : start].decode()
    except (struct.error, ValueError, PacketRefused) as error:
        raise StoreError("RECORD_DAMAGED", f"A retained message cannot be read: {error}.") from None
    return ApplicationMessage(
        packet.topic,
        packet.payload,
        packet.qos,
        retain=True,
        publisher=publisher,
        expires_ms=expires_ms or None,
        properties=packet.properties,
    )
