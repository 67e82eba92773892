"""The stored record: written and read back, and damage of any kind found."""

from __future__ import annotations

import socket
import struct
from dataclasses import fields, replace
from ipaddress import IPv4Address, IPv6Address
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import StoreError
from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.protocol.checksum import CheckedMessage
from millstream.protocol.record import (
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_BYTES,
    MIN_RECORD_BYTES,
    STORE_TIMESTAMP_POSITION,
    bodies_of,
    decode_record,
    encode_record,
    iterate_records,
    offset_message_id,
    outline_record,
    outline_records,
    split_record,
    split_state,
    store_timestamp_ms,
    verify_record,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=20)


def _as_the_system_spells_it(address: IPv4Address | IPv6Address) -> str:
    return socket.inet_ntop(socket.AF_INET6 if address.version == 6 else socket.AF_INET, address.packed)


HOSTS = st.builds(Address, st.ip_addresses().map(_as_the_system_spells_it), INT32)
FLAGS = st.sampled_from([SystemFlag.NONE, SystemFlag.COMPRESSED, SystemFlag.MULTI_TAGS | SystemFlag.COMPRESSION_ZSTD])
TOPICS = st.one_of(TEXT.filter(bool), st.integers(120, 255).map("t".__mul__))
MESSAGES = st.builds(
    OutgoingMessage,
    topic=TOPICS,
    body=st.binary(max_size=200),
    properties=st.dictionaries(TEXT, TEXT, max_size=4),
    system_flag=FLAGS,
    flag=INT32,
    born_timestamp_ms=INT64,
    born_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
)
PLACES = st.fixed_dictionaries(
    {
        "queue_id": INT32,
        "queue_offset": INT64,
        "log_offset": INT64,
        "store_timestamp_ms": INT64,
        "store_host": HOSTS,
    }
)


def _message(**changed: object) -> OutgoingMessage:
    fields: dict[str, object] = {"topic": "orders", "body": b"a body", "properties": {"TAGS": "paid", "KEYS": "k1 k2"}}
    return OutgoingMessage(**(fields | changed))  # type: ignore[arg-type]


def _record(message: OutgoingMessage | None = None, log_offset: int = 700) -> bytes:
    return encode_record(
        message or _message(),
        queue_id=3,
        queue_offset=5,
        log_offset=log_offset,
        store_timestamp_ms=1_700_000_000_000,
        store_host=Address("10.0.0.7", 10911),
    )


@given(message=MESSAGES, place=PLACES)
def test_a_record_reads_back_as_it_was_written(message: OutgoingMessage, place: dict[str, object]) -> None:
    record = encode_record(message, **place)  # type: ignore[arg-type]
    read = decode_record(record)
    for name in (
        "topic", "body", "properties", "flag", "born_timestamp_ms", "born_host", "reconsume_times",
        "prepared_transaction_offset",
    ):  # fmt: skip
        assert getattr(read, name) == getattr(message, name)
    for name, value in place.items():
        assert getattr(read, name) == value
    hosts = SystemFlag.BORN_HOST_IPV6 | SystemFlag.STORE_HOST_IPV6
    assert read.system_flag & ~hosts == message.system_flag
    assert bool(read.system_flag & SystemFlag.BORN_HOST_IPV6) == (":" in message.born_host.host)
    assert verify_record(record)


@given(message=MESSAGES, place=PLACES)
def test_the_outline_says_what_the_whole_record_says(message: OutgoingMessage, place: dict[str, object]) -> None:
    record = memoryview(encode_record(message, **place))  # type: ignore[arg-type]
    whole, outline = decode_record(record), outline_record(record)
    for name in ("topic", "queue_id", "queue_offset", "log_offset", "store_timestamp_ms", "tag"):
        assert getattr(outline, name) == getattr(whole, name)
    assert store_timestamp_ms(record) == whole.store_timestamp_ms


@given(message=MESSAGES, place=PLACES)
def test_the_few_parts_that_state_has_are_those_of_all_parts(
    message: OutgoingMessage, place: dict[str, object]
) -> None:
    record = memoryview(encode_record(message, **place))  # type: ignore[arg-type]
    parts = split_record(record)
    assert split_state(record) == (parts.queue_offset, parts.body, parts.properties)


@given(message=MESSAGES, place=PLACES)
def test_bodies_alone_are_those_of_the_whole_records_or_left_to_them(
    message: OutgoingMessage, place: dict[str, object]
) -> None:
    record = memoryview(encode_record(message, **place))  # type: ignore[arg-type]
    parts = split_record(record)
    unusual = SystemFlag.COMPRESSED | SystemFlag.BORN_HOST_IPV6 | SystemFlag.STORE_HOST_IPV6
    assert bodies_of([record]) == [None if parts.system_flag & unusual else parts.body]


def test_the_layout_is_rocketmqs_byte_for_byte() -> None:
    record = _record(
        _message(properties={"TAGS": "paid"}, flag=9, born_timestamp_ms=77, born_host=Address("10.0.0.9", 4))
    )
    properties = b"TAGS\x01paid\x02__CRC32#\x01"
    expected = struct.pack(">iii", len(record), MAGIC_V1, crc32(b"a body") & 0x7FFFFFFF)
    expected += struct.pack(">iiqqiq", 3, 9, 5, 700, 0, 77) + bytes([10, 0, 0, 9]) + struct.pack(">i", 4)
    expected += struct.pack(">q", 1_700_000_000_000) + bytes([10, 0, 0, 7]) + struct.pack(">i", 10911)
    expected += struct.pack(">iqi", 0, 0, 6) + b"a body" + b"\x06orders" + struct.pack(">h", len(properties) + 11)
    checksum = crc32(expected + b"TAGS\x01paid\x02") & 0x7FFFFFFF
    assert record == expected + properties + f"{checksum:010}"[::-1].encode() + b"\x02"
    assert record[STORE_TIMESTAMP_POSITION:][:8] == struct.pack(">q", 1_700_000_000_000)


def test_a_topic_over_127_bytes_takes_the_second_version() -> None:
    for length, magic in ((127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)):
        record = _record(_message(topic="t" * length))
        assert struct.unpack_from(">i", record, 4)[0] == magic
        assert decode_record(record).topic == "t" * length


def test_every_flipped_bit_is_found() -> None:
    record = _record(_message(born_host=Address("::1", 9)))
    for bit in range(len(record) * 8):
        damaged = bytearray(record)
        damaged[bit // 8] ^= 1 << bit % 8
        assert not verify_record(damaged), f"bit {bit}"


def test_decoding_finds_every_flipped_bit_before_the_checksum_itself() -> None:
    record = _record()
    for bit in range((len(record) - len("__CRC32#=0123456789.")) * 8):
        damaged = bytearray(record)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreError) as caught:
            decode_record(damaged)
        assert caught.value.name == "RECORD_DAMAGED", f"bit {bit}"


@given(st.binary(max_size=300))
def test_bytes_that_are_no_record_raise_nothing_but_record_damaged(noise: bytes) -> None:
    assert not verify_record(noise)
    with pytest.raises(StoreError) as caught:
        decode_record(noise)
    assert caught.value.name == "RECORD_DAMAGED"


@given(cut=st.integers(0, len(_record()) - 1))
def test_a_record_cut_short_is_damaged(cut: int) -> None:
    with pytest.raises(StoreError):
        decode_record(_record()[:cut])
    assert not verify_record(_record()[:cut])


def test_a_record_of_another_writer_is_read_without_its_checksum_property() -> None:
    ours = _record(_message(properties={"TAGS": "paid"}))
    foreign = bytearray(ours[:-20])
    struct.pack_into(">i", foreign, 0, len(foreign))
    struct.pack_into(">h", foreign, len(foreign) - len(b"TAGS\x01paid\x02") - 2, len(b"TAGS\x01paid\x02"))
    assert decode_record(foreign).properties == {"TAGS": "paid"}
    assert not verify_record(foreign), "the store holds no record without one"
    foreign[foreign.index(b"a body")] ^= 1
    with pytest.raises(StoreError):
        decode_record(foreign)
    assert decode_record(foreign, verify=False).body != b"a body"


def test_properties_up_to_the_limit_fit_and_more_are_refused() -> None:
    value = "v" * (MAX_PROPERTIES_BYTES - len("k\x01\x02"))
    assert decode_record(_record(_message(properties={"k": value}))).properties == {"k": value}
    with pytest.raises(ValueError, match="do not fit"):
        _record(_message(properties={"k": value + "v"}))


def test_records_laid_end_to_end_are_read_one_by_one() -> None:
    records = [_record(log_offset=offset) for offset in (0, 400, 800)]
    assert [bytes(record) for record in iterate_records(b"".join(records))] == records
    with pytest.raises(StoreError):
        list(iterate_records(b"".join(records)[:-1]))
    with pytest.raises(StoreError):
        list(iterate_records(bytes(MIN_RECORD_BYTES)))


def test_the_offset_message_id_is_address_port_and_log_offset() -> None:
    assert offset_message_id(Address("127.0.0.1", 10911), 0x1234) == "7F00000100002A9F0000000000001234"
    assert offset_message_id(Address("::1", 1), 2) == "0" * 31 + "1" + "00000001" + "0000000000000002"


@pytest.mark.parametrize("size", [131_071, 131_072, 131_073, 1_000_003])
def test_a_large_record_has_the_checksums_of_its_bytes(size: int) -> None:
    body = bytes(range(251)) * (size // 251 + 1)
    body = body[:size]
    record = _record(_message(body=body))
    assert verify_record(record)
    assert decode_record(record).body == body
    assert record[-11:-1][::-1] == b"%010d" % (crc32(record[:-20]) & 0x7FFFFFFF)


def test_a_body_whose_checksum_is_known_gives_the_same_record() -> None:
    for size in (10, 200_000):
        message = _message(body=bytes(size))
        known = CheckedMessage(**{field.name: getattr(message, field.name) for field in fields(message)}, crc32=0)
        right = replace(known, crc32=crc32(message.body))
        assert _record(right) == _record(message)
    assert _record(known) != _record(message), "the checksum of a large body is taken, not made again"


@given(messages=st.lists(MESSAGES, max_size=6), start=st.integers(0, 1 << 60), cut=st.integers(0, 400))
def test_outlines_of_records_laid_end_to_end_are_those_of_each(
    messages: list[OutgoingMessage], start: int, cut: int
) -> None:
    data, expected = b"", []
    for number, message in enumerate(messages):
        record = encode_record(
            message, queue_id=1, queue_offset=number, log_offset=start + len(data), store_timestamp_ms=9,
            store_host=Address("10.0.0.7", 10911),
        )  # fmt: skip
        expected.append((outline_record(record), len(record)))
        data += record
    assert list(outline_records(data, start)) == expected
    assert list(outline_records(data, start + 1)) == []
    found = list(outline_records(data[:-cut] if cut else data, start))
    assert found == expected[: len(found)]
    assert sum(size for _, size in found) <= max(len(data) - cut, 0)


def test_outlines_end_at_the_first_flipped_bit() -> None:
    records = [_record(log_offset=700), _record(log_offset=700 + len(_record())), _record()]
    data = b"".join(records[:2])
    for position in range(len(records[0]), len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        assert [size for _, size in outline_records(bytes(flipped), 700)] == [len(records[0])]
