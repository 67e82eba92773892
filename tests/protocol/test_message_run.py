"""Messages that are read together are those that are read one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.protocol.batches import messages_of, messages_of_run
from millstream.protocol.checksum import CHECKSUM_BYTES
from millstream.protocol.message_run import decode_run
from millstream.protocol.record import decode_record
from millstream.protocol.record_encoder import RecordEncoder

HOST = Address("192.0.2.1", 10911)
texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=20)
usual = st.builds(
    OutgoingMessage,
    topic=st.one_of(st.sampled_from(["orders", "other"]), texts.filter(bool)),
    body=st.binary(max_size=60),
    properties=st.dictionaries(texts, texts, max_size=3),
    system_flag=st.sampled_from([SystemFlag.NONE, SystemFlag.COMPRESSED, SystemFlag(0x303)]),
    flag=st.integers(0, 9),
    born_timestamp_ms=st.integers(0, 1 << 62),
    born_host=st.sampled_from([HOST, Address("192.0.2.7", 5)]),
    reconsume_times=st.integers(0, 20),
    prepared_transaction_offset=st.integers(0, 1 << 40),
)
UNUSUAL = [
    OutgoingMessage("orders", b"x", {}, born_host=Address("2001:db8::1", 6)),
    OutgoingMessage("x" * 128, b"x", {}),
]
unusual = st.sampled_from(UNUSUAL)


def records_of(messages: list[OutgoingMessage]) -> list[bytes]:
    encoder, records, end = RecordEncoder(1_700_000_000_000, HOST), [], 1 << 40
    for number, message in enumerate(messages):
        records.append(encoder.encode(message, 3, number, end))
        end += len(records[-1])
    return records


def decode(records: list[bytes]) -> object:
    return decode_run(b"".join(records), [(0, len(record), 0) for record in records])


@given(st.lists(usual, max_size=5))
def test_they_are_the_same(messages: list[OutgoingMessage]) -> None:
    records = records_of(messages)
    assert decode(records) == [decode_record(record) for record in records]


@given(st.lists(usual, max_size=2), unusual)
def test_an_unusual_one_among_them_is_left_to_the_general_way(
    usual: list[OutgoingMessage], odd: OutgoingMessage
) -> None:
    assert decode(records_of([*usual, odd])) is None


@given(st.lists(usual, min_size=1, max_size=2), st.data())
def test_lengths_that_lead_elsewhere_are_left_to_the_general_way(
    messages: list[OutgoingMessage], data: st.DataObject
) -> None:
    records = records_of(messages)
    changed = bytearray(records[-1])
    changed[data.draw(st.integers(84, 87))] ^= data.draw(st.integers(1, 255))
    # The length of the body: what stands behind it cannot be read as topic and properties but by chance.
    found = decode_run(b"".join([*records[:-1], bytes(changed)]), [(0, len(record), 0) for record in records])
    assert found is None or found[-1].body != decode_record(records[-1]).body
    assert decode([record[:60] for record in records]) is None


def test_places_beyond_the_bytes_that_are_there_are_left_to_the_general_way() -> None:
    record = records_of([OutgoingMessage("orders", b"x" * 90, {})])[0]
    for cut in range(len(record)):
        assert decode_run(record[:cut], [(0, len(record), 0)]) is None


def test_a_property_that_is_named_like_the_checksum_and_what_has_no_end_are_read_as_before() -> None:
    named = records_of([OutgoingMessage("orders", b"x", {"__CRC32#": "a", "b": "c"})])
    assert decode(named) == [decode_record(named[0])]
    open_end = records_of([OutgoingMessage("orders", b"x", {"b": "cd"})])[0].replace(b"cd\x02", b"cde")
    assert decode([open_end]) is None


@given(st.lists(st.one_of(usual, unusual), max_size=4))
def test_records_of_one_message_each_are_taken_apart_together_or_one_by_one(messages: list[OutgoingMessage]) -> None:
    records = records_of(messages)
    run = messages_of_run([memoryview(record) for record in records])
    one_by_one = [found for record in records for found in messages_of(record, 0)]
    assert run == (None if any(message in UNUSUAL for message in messages) else one_by_one)


def test_a_batch_or_a_record_of_another_writer_is_left_to_the_general_way() -> None:
    (plain,) = records_of([OutgoingMessage("orders", b"x", {"a": "b"})])
    (batch,) = records_of([OutgoingMessage("orders", b"x", {}, system_flag=SystemFlag.INNER_BATCH)])
    assert messages_of_run([plain, batch]) is None
    others = bytearray(plain[:-CHECKSUM_BYTES])
    others[:4] = len(others).to_bytes(4, "big")
    assert messages_of_run([plain, bytes(others)]) is None
    assert messages_of_run([plain, b""]) is None
