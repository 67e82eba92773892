"""Encodes delivered messages directly in protobuf's wire format, because every delivery is one.

Bodies are never compressed, because client libraries disagree on how to unpack them.

`RunEncoder` writes ordinary messages from the bytes of their records; `MessageEncoder` writes all, and is its oracle.
"""

from __future__ import annotations

import logging
import struct
import sys
import zlib
from binascii import hexlify
from collections.abc import Sequence
from hashlib import md5
from typing import Final

import lz4.frame

from millstream.broker.pop.dead_letters import ORIGIN_MESSAGE_ID, ORIGIN_TOPIC
from millstream.model import properties
from millstream.model.clock import SystemClock
from millstream.model.message import MAX_BODY_BYTES, Address, StoredMessage, SystemFlag
from millstream.model.operations import PoppedMessage
from millstream.protocol.checksum import CHECKSUM_BYTES
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.framing import PREFIX
from millstream.protocol.grpc.wire import VARINTS, bytes_field, encode_varint, number_field, tag
from millstream.protocol.record import offset_message_id, unpack_host
from millstream.protocol.record_encoder import HOST_BYTES, MAGIC_V1, fixed_part
from millstream.proxy.grpc.message_conversion import encoded_time
from millstream.proxy.grpc.namespace import NO_NAMESPACE, Namespace
from millstream.transport.heavy_work import HEAVY_BYTES
from millstream.transport.strangers import StrangerAct, StrangerLog

__all__ = [
    "MAX_UNPACKED_BYTES",
    "MessageEncoder",
    "RunEncoder",
    "end_frame",
    "light_body",
    "md5_text",
    "message_of",
    "plain_body",
]


try:
    from _md5 import md5 as short_md5  # type: ignore[import-not-found]  # A module of CPython without types.
except ImportError:
    short_md5 = md5

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdDecompressor, ZstdError
else:
    from backports.zstd import ZstdDecompressor, ZstdError


_log = logging.getLogger(__name__)
_strangers = StrangerLog(SystemClock())

MAX_UNPACKED_BYTES = MAX_BODY_BYTES
"""Bytes of an unpacked body at most, as of one that is sent plain; one that would grow beyond is unpacked no further
and delivered as it is stored."""

_HEAVY_PLAIN_BYTES = 4 * HEAVY_BYTES
"""A plain body is checked and copied alone, which is quicker."""

_COMPRESSED = int(SystemFlag.COMPRESSED)
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_UNPACKING_ERRORS = (zlib.error, RuntimeError, ZstdError, EOFError)


def plain_body(message: StoredMessage) -> bytes:
    """The body, unpacked if its record says that it is compressed (gzip, zlib, lz4 frame or zstd, told by its first
    bytes). A body that cannot be unpacked is delivered as it is stored: refusing it would stop its queue."""
    if not int(message.system_flag) & _COMPRESSED:
        return message.body
    try:
        unpacked = _unpack(message.body, MAX_UNPACKED_BYTES + 1)
    except _UNPACKING_ERRORS as error:
        _say(message, f"is not unpacked: {error}")
        return message.body
    if len(unpacked) > MAX_UNPACKED_BYTES:
        _say(message, f"unpacks to over {MAX_UNPACKED_BYTES} bytes")
        return message.body
    return unpacked


def light_body(message: StoredMessage) -> bytes | None:
    """The same where that is done at once; None where it takes so long that it belongs to a thread."""
    body = message.body
    if not int(message.system_flag) & _COMPRESSED:
        return body if len(body) <= _HEAVY_PLAIN_BYTES else None
    if len(body) > HEAVY_BYTES:
        return None
    try:
        unpacked = _unpack(body, HEAVY_BYTES + 1)
    except _UNPACKING_ERRORS:
        return plain_body(message)
    return unpacked if len(unpacked) <= HEAVY_BYTES else None


def _unpack(body: bytes, limit: int) -> bytes:
    """At most `limit` bytes of it: no more are made."""
    if body.startswith(b"\x28\xb5\x2f\xfd"):
        return bytes(ZstdDecompressor().decompress(body, limit))
    if body.startswith(b"\x04\x22\x4d\x18"):
        return bytes(lz4.frame.LZ4FrameDecompressor().decompress(body, limit))
    return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, limit)


def _say(message: StoredMessage, what: str) -> None:
    words = f"The body at log offset {message.log_offset} of {message.topic} {what}."
    _strangers.say(_log, StrangerAct.BAD_REQUEST, words)


_SHORT_BYTES = 2048
"""Bytes of a body up to which Python's own MD5 takes half of the time that OpenSSL's takes, which has to be set up."""


def md5_text(body: bytes) -> bytes:
    """The checksum that every client library reads the same way: MD5 as upper-case hex."""
    made = short_md5 if len(body) <= _SHORT_BYTES else md5
    return hexlify(made(body, usedforsecurity=False).digest()).upper()


_FRAME, _DELIVERY_TIME = tag(m.ReceiveMessageResponse, "message"), tag(m.ReceiveMessageResponse, "delivery_timestamp")
_TOPIC, _USER_PROPERTY = tag(m.Message, "topic"), tag(m.Message, "user_properties")
_SYSTEM, _BODY = tag(m.Message, "system_properties"), tag(m.Message, "body")
# A map is a list of messages of two fields.
_NAME, _VALUE = b"\x0a", b"\x12"

_TAG, _KEY = tag(m.SystemProperties, "tag"), tag(m.SystemProperties, "keys")
_MESSAGE_ID = tag(m.SystemProperties, "message_id")
_BORN_TIME, _BORN_HOST = tag(m.SystemProperties, "born_timestamp"), tag(m.SystemProperties, "born_host")
_STORE_TIME, _STORE_HOST = tag(m.SystemProperties, "store_timestamp"), tag(m.SystemProperties, "store_host")
_DUE_TIME = tag(m.SystemProperties, "delivery_timestamp")
_HANDLE, _INVISIBLE = tag(m.SystemProperties, "receipt_handle"), tag(m.SystemProperties, "invisible_duration")
_QUEUE_ID, _QUEUE_OFFSET = tag(m.SystemProperties, "queue_id"), tag(m.SystemProperties, "queue_offset")
_ATTEMPT = tag(m.SystemProperties, "delivery_attempt")
_GROUP, _TRACE = tag(m.SystemProperties, "message_group"), tag(m.SystemProperties, "trace_context")
_ORIGIN = tag(m.SystemProperties, "dead_letter_queue")
_LITE_TOPIC, _PRIORITY = tag(m.SystemProperties, "lite_topic"), tag(m.SystemProperties, "priority")

_MD5_DIGITS = 32
_DIGEST = bytes_field(
    tag(m.SystemProperties, "body_digest"),
    number_field(tag(m.Digest, "type"), m.MD5) + bytes_field(tag(m.Digest, "checksum"), bytes(_MD5_DIGITS)),
)[:-_MD5_DIGITS]
"""The digest but for its digits, which are always as many."""

_PLAIN_BODY_OF = {
    kind: number_field(tag(m.SystemProperties, "body_encoding"), m.IDENTITY)
    + number_field(tag(m.SystemProperties, "message_type"), kind)
    for kind in (m.NORMAL, m.FIFO, m.DELAY, m.TRANSACTION, m.PRIORITY, m.LITE)
}
"""A plain body of a message of each type."""

_UNUSUAL = frozenset(
    (
        properties.TAGS,
        properties.KEYS,
        properties.TRANSACTION,
        properties.MESSAGE_GROUP,
        properties.PRIORITY,
        properties.LITE_TOPIC,
        properties.TRACE_CONTEXT,
        ORIGIN_TOPIC,
        *properties.DELAYS,
        properties.DELAY_LEVEL,
    )
)
"""Properties that the ordinary message has none of: what it shows of them, and its type."""

_MAX_TIME_DIGITS = 19
"""Digits of a time at most; more are no time."""

_RESERVED = properties.RESERVED
_ORDINARY = _RESERVED - _UNUSUAL
"""Properties that show in an ordinary message as nothing, or in fields that every message has."""
_COMMITTED = int(SystemFlag.TRANSACTION_COMMIT)


class MessageEncoder:
    """Encodes messages of the topic that a client asks for by this name, in the namespace in which it asks."""

    __slots__ = ("_host", "_host_text", "_space", "_topic")

    def __init__(self, topic: m.Resource, space: Namespace = NO_NAMESPACE) -> None:
        if space.name:
            topic = m.Resource(name=space.own(topic.name), resource_namespace=topic.resource_namespace)
        self._topic = bytes_field(_TOPIC, topic.SerializeToString())
        self._space = space
        self._host: Address | None = None
        self._host_text = b""

    def frame(self, popped: PoppedMessage, body: bytes | None = None) -> bytes:
        """The frame of a receive with one delivery; `body` is the plain one where that is known already."""
        handle = popped.handle
        text = handle.encode().encode()
        receipt = b"".join((_HANDLE, VARINTS[len(text)], text))
        attempt = popped.delivery_attempt
        message = self.message(
            popped.message, attempt if attempt > 1 else 1, receipt, encoded_time(handle.invisible_ms), body
        )
        return b"".join((_FRAME, VARINTS[len(message)], message))

    def message(
        self,
        stored: StoredMessage,
        delivery_attempt: int = 1,
        receipt: bytes = b"",
        invisible: bytes = b"",
        body: bytes | None = None,
    ) -> bytes:
        """The message; without a receipt nobody can acknowledge it.

        The Python client's nack loops for ever over an attempt below 1.
        """
        held = stored.properties
        if body is None:
            body = plain_body(stored)
        message_id = (held.get(properties.UNIQUE_KEY) or _place_id(stored)).encode()
        born_host = (held.get(properties.BORN_HOST) or stored.born_host.host).encode()
        host = stored.store_host
        if host is not self._host:
            self._host, self._host_text = host, f"{host.host}:{host.port}".encode()
        store_host = self._host_text
        queue_id = stored.queue_id
        is_bare = _ORDINARY.issuperset(held)
        is_plain = is_bare or _UNUSUAL.isdisjoint(held)
        kind = m.NORMAL if is_plain and not int(stored.system_flag) else _stored_type(stored)
        system = b"".join(
            (
                b"" if is_plain else _tag_and_keys(stored),
                _MESSAGE_ID, VARINTS[len(message_id)], message_id,
                _DIGEST, md5_text(body), _PLAIN_BODY_OF[kind],
                _BORN_TIME, encoded_time(stored.born_timestamp_ms),
                _BORN_HOST, VARINTS[len(born_host)], born_host,
                _STORE_TIME, encoded_time(stored.store_timestamp_ms),
                _STORE_HOST, VARINTS[len(store_host)], store_host,
                b"" if is_plain else _due_time(held),
                receipt,
                _QUEUE_ID + VARINTS[queue_id] if queue_id else b"",
                _QUEUE_OFFSET, VARINTS[stored.queue_offset],
                _INVISIBLE + invisible if invisible else b"",
                _ATTEMPT, VARINTS[delivery_attempt],
                b"" if is_plain else self._rare(stored),
            )
        )  # fmt: skip
        user = b"" if is_bare else b"".join(_user_properties(held))
        if not body:
            return b"".join((self._topic, user, _SYSTEM, VARINTS[len(system)], system))
        return b"".join((self._topic, user, _SYSTEM, VARINTS[len(system)], system, _BODY, VARINTS[len(body)], body))

    def _rare(self, stored: StoredMessage) -> bytes:
        """What few messages have, behind the attempt; clients ask whether it is there."""
        held, written = stored.properties, b""
        if (group := held.get(properties.MESSAGE_GROUP)) is not None:
            written += bytes_field(_GROUP, group.encode())
        if (trace_context := held.get(properties.TRACE_CONTEXT)) is not None:
            written += bytes_field(_TRACE, trace_context.encode())
        if (origin := held.get(ORIGIN_TOPIC)) is not None:
            dead = m.DeadLetterQueue(topic=self._space.own(origin), message_id=held.get(ORIGIN_MESSAGE_ID, ""))
            written += bytes_field(_ORIGIN, dead.SerializeToString())
        if (lite_topic := held.get(properties.LITE_TOPIC)) is not None:
            written += bytes_field(_LITE_TOPIC, lite_topic.encode())
        if (priority := stored.priority) is not None:
            written += _PRIORITY + VARINTS[priority]
        return written


_FIXED_BYTES: Final = fixed_part(HOST_BYTES, HOST_BYTES).layout.size
_CHECKSUM_BYTES: Final = CHECKSUM_BYTES
_END_OF_VALUE: Final = 2

_RECORD: Final = struct.Struct(f">4xi28xi{2 * (8 + HOST_BYTES)}s12xi")
"""Of a record: magic, system flag, the times and hosts of its birth and its storage, and the size of the body."""

_TIMES: Final = struct.Struct(f">q{HOST_BYTES}sq{HOST_BYTES}s")
_unpack_record: Final = _RECORD.unpack_from

_HIDDEN, _ID, _HOST, _TAG_NAME, _KEY_NAMES, _OTHER = range(6)
"""What becomes of a property: nothing, the message's id, its born host, tag or keys; others make a record unusual."""

_PARTS: Final = {
    **{name.encode(): _OTHER for name in _RESERVED},
    **{name.encode(): _HIDDEN for name in _ORDINARY},
    properties.EXPIRES_MS.encode(): _OTHER,
    b"__CRC32#": _OTHER,
    properties.UNIQUE_KEY.encode(): _ID,
    properties.BORN_HOST.encode(): _HOST,
    properties.TAGS.encode(): _TAG_NAME,
    properties.KEYS.encode(): _KEY_NAMES,
}
"""Property name -> what becomes of it; names that are not there are the application's own."""

_DIGEST_BYTES: Final = len(_DIGEST) + _MD5_DIGITS
_PLAIN_AND_BORN: Final = _PLAIN_BODY_OF[m.NORMAL] + _BORN_TIME


class RunEncoder:
    """Writes first deliveries of one topic's ordinary records, whose names clients know as they are stored."""

    __slots__ = (
        "_born", "_born_field", "_born_host", "_broker_name", "_message_id", "_name", "_named_host", "_own", "_sorting",
        "_store", "_store_field", "_topic",
    )  # fmt: skip

    def __init__(self, topic: str, broker_name: str) -> None:
        name = topic.encode()
        # As it stands in records; a longer one stands otherwise in those of another version.
        self._name = bytes((min(len(name), 255),)) + name
        self._topic = bytes_field(_TOPIC, m.Resource(name=topic).SerializeToString())
        self._broker_name = broker_name
        # Of the record in hand: what its sender named, and as fields its tag and keys and the application's own.
        self._message_id = self._born_host = self._sorting = self._own = b""
        # Of the last one: its hosts, and the fields that they make.
        self._born = self._named_host = self._born_field = self._store = self._store_field = b""

    def encode(
        self,
        data: bytes,
        places: Sequence[tuple[int, int, int]],
        queue_id: int,
        queue_offset: int,
        pop_time_ms: int,
        invisible_ms: int,
    ) -> tuple[bytes, int] | None:
        """The frames of a receive, each as `MessageEncoder.frame` gives it and behind gRPC's prefix; and the bytes of
        the bodies.

        `data` holds the records of a queue from the offset on, one behind the other, each checked; `places` are those
        of `store.record_run`. None where one of them is unusual, and none is written.
        """
        name, topic = self._name, self._topic
        receipt = f" {pop_time_ms} {invisible_ms} 0 0 {self._broker_name} {queue_id} "
        place_head = (_QUEUE_ID + VARINTS[queue_id] if queue_id else b"") + _QUEUE_OFFSET
        end_of_system = _INVISIBLE + encoded_time(invisible_ms) + _ATTEMPT + VARINTS[1]
        # What neighbours have in common is made once.
        last_times, last_host, times = b"", b"", b""
        last_id_bytes = last_receipt_bytes = last_system_bytes = last_message_bytes = last_body_bytes = -1
        id_head, receipt_head, system_head, message_head, body_head = b"", b"", b"", b"", b""
        parts: list[bytes] = []
        start, offset, all_body_bytes = 0, queue_offset, 0
        for log_offset, size, _ in places:
            end = start + size
            checked = end - _CHECKSUM_BYTES
            body_start = start + _FIXED_BYTES
            if body_start > checked or end > len(data):
                return None
            magic, system_flag, own_times, body_bytes = _unpack_record(data, start)
            body_end = body_start + body_bytes
            topic_end = body_end + len(name)
            text_start = topic_end + 2
            if magic != MAGIC_V1 or system_flag or body_end < body_start or text_start >= checked:
                return None
            if (data[topic_end] << 8 | data[topic_end + 1]) != end - text_start or data[checked - 1] != _END_OF_VALUE:
                return None
            if data[body_end:topic_end] != name or not self._read_properties(data[text_start:checked]):
                return None
            message_id, host = self._message_id, self._born_host
            if own_times != last_times or host != last_host:
                last_times, last_host, times = own_times, host, self._encode_times(own_times, host)
            if len(message_id) != last_id_bytes:
                last_id_bytes = len(message_id)
                id_head = _MESSAGE_ID + VARINTS[last_id_bytes]
            handle = f"{offset}{receipt}{offset} {log_offset}".encode()
            if len(handle) != last_receipt_bytes:
                last_receipt_bytes = len(handle)
                receipt_head = _HANDLE + VARINTS[last_receipt_bytes]
            body = data[body_start:body_end]
            place = encode_varint(offset)
            sorting, user = self._sorting, self._own
            system_bytes = (
                len(sorting) + len(id_head) + last_id_bytes + _DIGEST_BYTES + len(times) + len(receipt_head)
                + last_receipt_bytes + len(place_head) + len(place) + len(end_of_system)
            )  # fmt: skip
            if system_bytes != last_system_bytes:
                last_system_bytes = system_bytes
                system_head = _SYSTEM + VARINTS[system_bytes]
            if body_bytes != last_body_bytes:
                last_body_bytes = body_bytes
                body_head = _BODY + VARINTS[body_bytes] if body_bytes else b""
            message_bytes = len(topic) + len(user) + len(system_head) + system_bytes + len(body_head) + body_bytes
            if message_bytes != last_message_bytes:
                last_message_bytes = message_bytes
                head = _FRAME + VARINTS[message_bytes]
                message_head = PREFIX.pack(0, len(head) + message_bytes) + head + topic
            parts += (
                message_head, user, system_head, sorting, id_head, message_id, _DIGEST, md5_text(body), times,
                receipt_head, handle, place_head, place, end_of_system, body_head, body,
            )  # fmt: skip
            start = end
            offset += 1
            all_body_bytes += body_bytes
        return b"".join(parts), all_body_bytes

    def _encode_times(self, times: bytes, named_host: bytes) -> bytes:
        """What stands between a message's digest and its receipt handle. Its sender may have named the host of its
        birth."""
        born_ms, born, store_ms, store = _TIMES.unpack(times)
        if born != self._born or named_host != self._named_host:
            self._born, self._named_host = born, named_host
            self._born_field = bytes_field(_BORN_HOST, named_host or unpack_host(born).host.encode()) + _STORE_TIME
        if store != self._store:
            self._store, host = store, unpack_host(store)
            self._store_field = bytes_field(_STORE_HOST, f"{host.host}:{host.port}".encode())
        return b"".join(
            (_PLAIN_AND_BORN, encoded_time(born_ms), self._born_field, encoded_time(store_ms), self._store_field)
        )

    def _read_properties(self, text: bytes) -> bool:
        """Whether the properties of a record are ordinary ones, of which each is there once."""
        if not text.isascii() and not _is_text(text):
            return False
        message_id = host = b""
        tag_text: bytes | None = None
        keys: bytes | None = None
        own: dict[bytes, bytes] | None = None
        for pair in text.split(b"\x02"):
            name, mark, value = pair.partition(b"\x01")
            if not mark:
                continue
            part = _PARTS.get(name)
            if part is None:
                if own is None:
                    own = {}
                elif name in own:
                    return False
                own[name] = value
            elif part == _ID and not message_id:
                message_id = value
            elif part == _HOST and not host:
                host = value
            elif part == _TAG_NAME and tag_text is None:
                tag_text = value
            elif part == _KEY_NAMES and keys is None:
                keys = value
            elif part != _HIDDEN:
                return False
        self._message_id, self._born_host = message_id, host
        self._sorting = b"" if tag_text is None and keys is None else _encode_sorting(tag_text, keys)
        self._own = b"" if own is None else _encode_own(own)
        return len(message_id) > 0


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _encode_sorting(tag_text: bytes | None, keys: bytes | None) -> bytes:
    written = b"" if tag_text is None else bytes_field(_TAG, tag_text)
    # As text: it falls apart at more characters than bytes do.
    for key in () if keys is None else keys.decode().split():
        written += bytes_field(_KEY, key.encode())
    return written


def _encode_own(own: dict[bytes, bytes]) -> bytes:
    return b"".join(
        [
            bytes_field(_USER_PROPERTY, bytes_field(_NAME, name) + bytes_field(_VALUE, value))
            for name, value in own.items()
        ]
    )


def end_frame(now_ms: int) -> bytes:
    """The last frame of a receive, which says when it was answered."""
    return _DELIVERY_TIME + encoded_time(now_ms)


def message_of(stored: StoredMessage, topic: m.Resource, body: bytes | None = None) -> m.Message:
    """A message as a client reads it, without a receipt handle: nobody can acknowledge it.

    `body` is the plain one where that is known already.
    """
    return m.Message.FromString(MessageEncoder(topic).message(stored, body=body))


def _user_properties(held: dict[str, str]) -> list[bytes]:
    return [
        bytes_field(_USER_PROPERTY, bytes_field(_NAME, name.encode()) + bytes_field(_VALUE, value.encode()))
        for name, value in held.items()
        if name not in _RESERVED
    ]


def _tag_and_keys(stored: StoredMessage) -> bytes:
    written = b"" if (tag_text := stored.tag) is None else bytes_field(_TAG, tag_text.encode())
    for key in stored.keys:
        written += bytes_field(_KEY, key.encode())
    return written


def _due_time(held: dict[str, str]) -> bytes:
    """When it was to be delivered, where its sender named a point in time."""
    due = held.get(properties.DELIVERY_TIME_MS, "")
    is_time = due.isascii() and due.isdecimal() and len(due) <= _MAX_TIME_DIGITS
    return _DUE_TIME + encoded_time(int(due)) if is_time else b""


def _place_id(stored: StoredMessage) -> str:
    """An id for a message whose sender gave it none, as rows of the bulk lane: no two have the same place."""
    return f"{offset_message_id(stored.store_host, stored.log_offset)}{stored.queue_offset:016X}"


def _stored_type(stored: StoredMessage) -> m.MessageType:
    held = stored.properties
    if int(stored.system_flag) & _COMMITTED or properties.TRANSACTION in held:
        return m.TRANSACTION
    if held.get(properties.DELAY_LEVEL, "0") != "0" or not properties.DELAYS.isdisjoint(held):
        return m.DELAY
    if properties.MESSAGE_GROUP in held:
        return m.FIFO
    if properties.PRIORITY in held:
        return m.PRIORITY
    return m.LITE if properties.LITE_TOPIC in held else m.NORMAL
