"""The record of an ordinary message is the one that the general way writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.model.properties import encode_properties
from millstream.protocol.checksum import checksum_property, has_checksum, write_number
from millstream.protocol.record_encoder import PlainRecord, RecordEncoder

HOST = Address("192.0.2.1", 10911)
texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=30)
hosts = st.sampled_from([Address("192.0.2.7", 5), Address("2001:db8::1", 6)])


@given(
    st.lists(
        st.tuples(
            texts, st.integers(0, 99), st.binary(max_size=300), st.dictionaries(texts, texts, max_size=3),
            st.sampled_from([0, 1]), st.integers(0, 1 << 62), hosts,
        ),
        max_size=5,
    )
)  # fmt: skip
def test_it_is_the_general_one_whatever_was_encoded_before(
    messages: list[tuple[str, int, bytes, dict[str, str], int, int, Address]],
) -> None:
    encoder = RecordEncoder(1_700_000_000_000, HOST)
    for number, (topic, queue_id, body, held, flag, born_ms, host) in enumerate(messages):
        general = OutgoingMessage(
            topic, body, held, system_flag=SystemFlag(flag), born_timestamp_ms=born_ms, born_host=host
        )
        wanted = RecordEncoder(1_700_000_000_000, HOST).encode(general, queue_id, number, number << 33)
        plain = PlainRecord(topic, queue_id, body, held, encode_properties(held), flag, born_ms, host)
        assert encoder.encode_plain(plain, number, number << 33) == wanted
        assert encoder.encode(general, queue_id, number, number << 33) == wanted


@given(st.integers(0, (1 << 32) - 1))
def test_a_checksum_has_ten_digits_the_lowest_first(crc: int) -> None:
    assert checksum_property(crc) == b"__CRC32#\x01" + (b"%010d" % (crc & 0x7FFFFFFF))[::-1] + b"\x02"
    assert has_checksum(b"before" + checksum_property(crc), 6, crc)


@given(st.integers(0, (1 << 32) - 1), st.integers(0, 19), st.integers(1, 255))
def test_a_checksum_with_another_byte_is_none(crc: int, place: int, change: int) -> None:
    written = bytearray(checksum_property(crc))
    written[place] ^= change
    assert not has_checksum(bytes(written), 0, crc)


def test_a_plain_record_says_what_it_holds() -> None:
    held = {"TAGS": "b", "UNIQ_KEY": "id"}
    record = PlainRecord("orders", 3, b"x", held, b"TAGS\x01b\x02UNIQ_KEY\x01id\x02", 1, 5, HOST)
    assert (record.message_id, record.tag) == ("id", "b")
    assert repr(record) == (
        "PlainRecord(topic='orders', queue_id=3, body=b'x', properties={'TAGS': 'b', 'UNIQ_KEY': 'id'}, "
        "stored_properties=b'TAGS\\x01b\\x02UNIQ_KEY\\x01id\\x02', system_flag=1, born_timestamp_ms=5, "
        f"born_host={HOST!r})"
    )


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(1, 8), st.integers(0, 5))
def test_a_number_is_written_with_its_lowest_bytes_and_nothing_beside_it(number: int, size: int, at: int) -> None:
    buffer = bytearray(b"\xaa" * 14)
    write_number(buffer, at, size, number)
    assert buffer[at : at + size] == (number & (1 << 8 * size) - 1).to_bytes(size, "big")
    assert set(buffer[:at] + buffer[at + size :]) <= {0xAA}
