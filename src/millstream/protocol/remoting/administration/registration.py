"""The body of a broker's registration at a nameserver: JSON, or compressed parts.

Compressed, it is a zlib stream of parts, each after its length as int32: the data version's JSON; after the number of
topics (int32) each one as text `name readQueues writeQueues permission filterType attributes`; the JSON of the filter
servers; after their number (int32) the JSON of the mappings of static topics. Source: RocketMQ 5.3's RegisterBrokerBody
and TopicConfig (facts only).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from millstream.model.errors import MessageRefused
from millstream.model.logic_queue import TopicMapping
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.settings import topic_data
from millstream.protocol.remoting.administration.static_topics import mapping_info
from millstream.protocol.remoting.bodies import (
    CamelBody,
    RegisterBrokerBody,
    TopicConfigData,
    TopicConfigTable,
    TopicMappingInfo,
    decode_body,
    encode_body,
)
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand

__all__ = [
    "MAX_COMPRESSION",
    "MAX_REGISTRATION_BYTES",
    "TELL_ALL_FIELD",
    "WHOLE_FIELD",
    "BrokerIdentity",
    "decode_registration",
    "decode_version",
    "pack_registration",
]

MAX_REGISTRATION_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one broker's compressed registration at most, once it is unpacked: as many as one frame has."""

MAX_COMPRESSION: Final = 1032
"""To how many bytes one byte of a zlib stream can unpack at most (zlib's own figure)."""

WHOLE_FIELD: Final = "whole"
"""Ours: the registration tells all topics, so others are gone. RocketMQ's brokers tell the changed ones alone."""

TELL_ALL_FIELD: Final = "tellAll"
"""Ours, in the answer: the nameserver does not know all topics of the broker, which is to tell them now."""

_MAX_PLAIN_TOPICS: Final = 100
_MAX_VERSION_BYTES: Final = 4096
"""Bytes of a compressed registration that hold its version, the first part, if it is one."""

_CRC_MASK: Final = 0x7FFF_FFFF
_LENGTH: Final = struct.Struct(">i")
_WORDS: Final = 6


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Who registers. `address` is what clients connect to, as `host:port`; id 0 is a master."""

    cluster: str
    name: str
    address: str
    broker_id: int = 0
    epoch: int = 0
    """Of which epoch the controllers made it the master, or the one that it follows; 0 without controllers."""

    @property
    def is_replica(self) -> bool:
        """Whether another broker of its name is the master."""
        return self.broker_id != 0

    def _fields(self) -> dict[str, str]:
        return {
            "brokerName": self.name,
            "brokerAddr": self.address,
            "clusterName": self.cluster,
            "brokerId": str(self.broker_id),
        }

    def registration(
        self, topics: Iterable[TopicConfig], *, whole: bool, mappings: Iterable[TopicMapping] = ()
    ) -> RemotingCommand:
        """The request that tells topics: all that there are (`whole`), or those that are new or changed.

        Of the mappings those of the topics count. Large ones travel compressed.
        """
        topic_table = {topic.name: topic_data(topic) for topic in topics}
        infos = {mapping.topic: mapping_info(mapping) for mapping in mappings if mapping.topic in topic_table}
        body = RegisterBrokerBody(
            TopicConfigTable(topic_table, {"counter": 0, "timestamp": 0, "stateVersion": self.epoch}, infos), []
        )
        is_compressed = len(topic_table) > _MAX_PLAIN_TOPICS
        encoded = pack_registration(body) if is_compressed else encode_body(body)
        ext = {
            **self._fields(),
            "haServerAddr": "",
            "compressed": str(is_compressed).lower(),
            "bodyCrc32": str(zlib.crc32(encoded) & _CRC_MASK),
            WHOLE_FIELD: str(whole).lower(),
        }
        return RemotingCommand(RequestCode.REGISTER_BROKER, ext, encoded)

    def farewell(self) -> RemotingCommand:
        """The request that takes the registration back."""
        return RemotingCommand(RequestCode.UNREGISTER_BROKER, self._fields())


def pack_registration(body: RegisterBrokerBody) -> bytes:
    """The body in compressed form."""
    table = body.topic_config_serialize_wrapper
    topics = table.topic_config_table.values()
    parts = [_part(json.dumps(table.data_version).encode()), _LENGTH.pack(len(topics))]
    parts += [_part(_text(topic).encode()) for topic in topics]
    mappings = table.topic_queue_mapping_info_map.values()
    parts += [_part(json.dumps(body.filter_server_list or []).encode()), _LENGTH.pack(len(mappings))]
    parts += [_part(encode_body(info)) for info in mappings]
    return zlib.compress(b"".join(parts))


def decode_registration(body: bytes, *, is_compressed: bool) -> RegisterBrokerBody:
    """The registration of either form; an empty body tells no topics. Raises MESSAGE_MALFORMED."""
    if not body:
        return RegisterBrokerBody()
    if not is_compressed:
        return decode_body(RegisterBrokerBody, body)
    try:
        return _unpack(_inflate(body))
    except (zlib.error, struct.error, ValueError) as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"A compressed registration cannot be read: {error}.") from None


class _VersionedTable(CamelBody):
    data_version: Any = None


class _VersionedBody(CamelBody):
    topic_config_serialize_wrapper: _VersionedTable = msgspec.field(default_factory=_VersionedTable)


def decode_version(body: bytes, *, is_compressed: bool) -> Any:
    """The version of the topics that such a registration tells, without a look at them. Raises MESSAGE_MALFORMED."""
    if not body:
        return None
    if not is_compressed:
        return decode_body(_VersionedBody, body).topic_config_serialize_wrapper.data_version
    try:
        version, _ = _next(memoryview(zlib.decompressobj().decompress(body, _MAX_VERSION_BYTES)), 0)
        return json.loads(bytes(version) or b"null")
    except (zlib.error, struct.error, ValueError) as error:
        raise MessageRefused("MESSAGE_MALFORMED", f"A compressed registration cannot be read: {error}.") from None


def _inflate(body: bytes) -> memoryview:
    inflater = zlib.decompressobj()
    found = inflater.decompress(body, MAX_REGISTRATION_BYTES)
    if not inflater.eof:
        raise ValueError(f"it ends too early, or has over {MAX_REGISTRATION_BYTES} bytes")
    return memoryview(found)


def _unpack(data: memoryview) -> RegisterBrokerBody:
    version, place = _next(data, 0)
    [count] = _LENGTH.unpack_from(data, place)
    place += _LENGTH.size
    topics: dict[str, TopicConfigData] = {}
    for _ in range(count):
        text, place = _next(data, place)
        topic = _topic(str(text, "utf-8"))
        topics[topic.topic_name] = topic
    mappings: dict[str, TopicMappingInfo] = {}
    if place < len(data):
        _, place = _next(data, place)
    if place < len(data):  # RocketMQ's brokers before 5.0 end here.
        [count] = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        for _ in range(count):
            part, place = _next(data, place)
            info = decode_body(TopicMappingInfo, bytes(part))
            mappings[info.topic] = info
    return RegisterBrokerBody(TopicConfigTable(topics, json.loads(bytes(version) or b"null"), mappings))


def _next(data: memoryview, place: int) -> tuple[memoryview, int]:
    """The part at `place`, and where the next one begins."""
    [length] = _LENGTH.unpack_from(data, place)
    start = place + _LENGTH.size
    if length < 0 or start + length > len(data):
        raise ValueError(f"a part at byte {place} has {length} bytes")
    return data[start : start + length], start + length


def _part(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _text(topic: TopicConfigData) -> str:
    words = (topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_filter_type)
    return " ".join([*map(str, words), json.dumps(topic.attributes or {}, separators=(",", ":"))])


def _topic(text: str) -> TopicConfigData:
    words = text.split(" ", _WORDS - 1)
    if len(words) < _WORDS - 1:
        raise ValueError(f"{text[:200]!r} is no topic")
    name, read, write, permission, filter_type = words[: _WORDS - 1]
    attributes = msgspec.json.decode(words[-1]) if len(words) == _WORDS and words[-1] else {}
    if not isinstance(attributes, dict):
        raise ValueError(f"{text[:200]!r} has attributes that are no map")
    return TopicConfigData(
        name,
        int(read),
        int(write),
        int(permission),
        filter_type,
        attributes={str(key): str(value) for key, value in attributes.items()},
    )
