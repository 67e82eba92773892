"""Decodes records that are read together: fields that neighbours share are decoded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.model.message import StoredMessage, SystemFlag
from millstream.protocol.checksum import CHECKSUM_BYTES
from millstream.protocol.record import unpack_host
from millstream.protocol.record_encoder import HOST_BYTES, HOST_FLAGS, MAGIC_V1, fixed_part

__all__ = ["decode_run"]

_IPV4: Final = fixed_part(HOST_BYTES, HOST_BYTES).layout
_unpack: Final = _IPV4.unpack_from
_FIXED_BYTES: Final = _IPV4.size
_CHECKSUM_BYTES: Final = CHECKSUM_BYTES
_END_OF_VALUE: Final = 2
_CHECKSUM: Final = "__CRC32#"


def decode_run(data: bytes, places: Sequence[tuple[int, int, int]]) -> list[StoredMessage] | None:
    """The messages of the records that `data` holds one behind the other, each of which ends with a good checksum.

    `places` are those of `store.record_run`. None where a record is unusual and `decode_record` has to be asked: by its
    hosts, the length of its topic, or properties that are not written as we write them.
    """
    messages: list[StoredMessage] = []
    last_topic, last_born, last_store, last_flag = b"", b"", b"", -1
    topic, flags = "", SystemFlag.NONE
    start = 0
    for _, size, _ in places:
        end = start + size
        if start + _FIXED_BYTES + _CHECKSUM_BYTES > end or end > len(data):
            return None
        (
            _, magic, _, queue_id, flag, queue_offset, log_offset, system_flag, born_ms, born_host,
            store_ms, store_host, reconsume_times, prepared_offset, body_bytes,
        ) = _unpack(data, start)  # fmt: skip
        checked = end - _CHECKSUM_BYTES
        body_start = start + _FIXED_BYTES
        body_end = body_start + body_bytes
        if magic != MAGIC_V1 or system_flag & HOST_FLAGS or body_end < body_start or body_end + 3 > checked:
            return None
        topic_end = body_end + 1 + data[body_end]
        text_start = topic_end + 2
        if text_start > checked or (data[topic_end] << 8 | data[topic_end + 1]) != end - text_start:
            return None
        if text_start < checked and data[checked - 1] != _END_OF_VALUE:
            return None
        name = data[body_end + 1 : topic_end]
        if name != last_topic:
            last_topic, topic = name, name.decode()
        if born_host != last_born:
            last_born, born = born_host, unpack_host(born_host)
        if store_host != last_store:
            last_store, store = store_host, unpack_host(store_host)
        if system_flag != last_flag:
            last_flag, flags = system_flag, SystemFlag(system_flag)
        text = data[text_start:checked].decode("utf-8", "replace")
        properties = dict([pair.split("\x01", 1) for pair in text.split("\x02") if "\x01" in pair])
        properties.pop(_CHECKSUM, None)
        messages.append(
            StoredMessage(
                topic, queue_id, queue_offset, log_offset, data[body_start:body_end], properties, born_ms, born,
                store_ms, store, flags, flag, reconsume_times, prepared_offset,
            )
        )  # fmt: skip
        start = end
    return messages
