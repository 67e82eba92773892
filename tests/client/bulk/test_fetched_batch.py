"""Fetched records become one table, whatever kind they are; what is damaged is named and never given."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.bulk.encoding import BulkEncoder
from millstream.client.bulk.fetched import MAX_TABLE_BYTES, TABLE_SCHEMA, FetchedBatch, decode_fetch
from millstream.client.values import PullBatch, QueueAddress
from millstream.model.errors import StoreError
from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.model.operations import PullStatus
from millstream.protocol.record import encode_record
from millstream.protocol.remoting.messages.batch import encode_batch_item

_QUEUE = QueueAddress("t", "broker-a", 0, "127.0.0.1:1")
_BULK = SystemFlag.INNER_BATCH | SystemFlag.ARROW_BATCH


def _record(
    body: bytes, offset: int, properties: dict[str, str] | None = None, flags: SystemFlag = SystemFlag.NONE
) -> bytes:
    message = OutgoingMessage("t", body, properties or {}, system_flag=flags, born_timestamp_ms=5000 + offset)
    return encode_record(
        message, queue_id=0, queue_offset=offset, log_offset=1000 + offset, store_timestamp_ms=7000 + offset,
        store_host=Address("127.0.0.1", 1),
    )  # fmt: skip


def _bulk(bodies: list[bytes], offset: int, codec: str = "zstd") -> bytes:
    batch = pa.record_batch({"body": pa.array(bodies, pa.binary()), "key": [f"k{body.decode()}" for body in bodies]})
    [encoded] = BulkEncoder(codec=codec).encode(batch)
    return _record(encoded.stream, offset, {"INNER_NUM": str(len(bodies)), "INNER_BASE": str(offset)}, _BULK)


def _read(*records: bytes, offset: int = 0) -> FetchedBatch:
    return decode_fetch(PullBatch(PullStatus.FOUND, 99, 0, 100, b"".join(records)), _QUEUE, offset)


def test_both_kinds_of_records_stand_in_one_table_in_order() -> None:
    single = _record(b"c", 2, {"UNIQ_KEY": "U", "TAGS": "t", "KEYS": "k l", "colour": "blue"})
    batch = _read(_bulk([b"0", b"1"], 0), single, _bulk([b"3"], 3), _record(b"d", 4))
    assert batch.table.schema == TABLE_SCHEMA
    assert batch.table.column("body").to_pylist() == [b"0", b"1", b"c", b"3", b"d"]
    assert batch.table.column("queue_offset").to_pylist() == [0, 1, 2, 3, 4]
    assert batch.table.column("key").to_pylist() == ["k0", "k1", "k l", "k3", None]
    assert batch.table.column("tag").to_pylist() == [None, None, "t", None, None]
    assert batch.table.column("properties").to_pylist() == [
        None,
        None,
        "UNIQ_KEY\x01U\x02colour\x01blue\x02",
        None,
        None,
    ]
    assert batch.table.column("store_timestamp_ms").to_pylist() == [7000, 7000, 7002, 7003, 7004]
    assert batch.table.column("born_timestamp_ms").to_pylist() == [5000, 5000, 5002, 5003, 5004]
    assert (batch.status, batch.next_offset, batch.min_offset, batch.max_offset) == (PullStatus.FOUND, 99, 0, 100)
    assert batch.damaged == ()


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=6), st.integers(0, 20))
def test_rows_before_the_offset_are_cut_off(shape: list[tuple[bool, int]], offset: int) -> None:
    records, count = [], 0
    for is_bulk, size in shape:
        bodies = [b"%d" % number for number in range(count, count + size)]
        records += [_bulk(bodies, count, "none")] if is_bulk else [_record(body, int(body)) for body in bodies]
        count += size
    table = _read(*records, offset=offset).table
    assert table.column("queue_offset").to_pylist() == list(range(offset, count))
    assert table.column("body").to_pylist() == [b"%d" % number for number in range(offset, count)]


def test_an_answer_without_records_is_an_empty_table() -> None:
    assert _read().table == TABLE_SCHEMA.empty_table()


def test_an_inner_batch_is_taken_apart() -> None:
    body = encode_batch_item(b"a", {"TAGS": "t"}) + encode_batch_item(b"b", {"colour": "blue"})
    flags = SystemFlag.INNER_BATCH | SystemFlag.NEED_UNWRAP
    table = _read(_record(body, 4, {"INNER_NUM": "2", "INNER_BASE": "4"}, flags), offset=5).table
    assert table.select(["body", "tag", "properties", "queue_offset"]).to_pylist() == [
        {"body": b"b", "tag": None, "properties": "colour\x01blue\x02", "queue_offset": 5}
    ]


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_record_that_fails_its_checksum_is_named_and_passed_over(damaged: int) -> None:
    records = [bytearray(_bulk([b"0", b"1"], 0)), bytearray(_record(b"a", 2)), bytearray(_bulk([b"3", b"4"], 3))]
    records[damaged][-40] ^= 1
    batch = _read(*map(bytes, records))
    left = [[0, 1], [2], [3, 4]]
    assert [entry.log_offset for entry in batch.damaged] == [1000 + left.pop(damaged)[0]]
    assert batch.table.column("queue_offset").to_pylist() == [*left[0], *left[1]]


def test_every_flipped_byte_of_a_bulk_record_is_found() -> None:
    record, other = _bulk([b"0", b"1"], 0), _record(b"a", 2)
    # The first four bytes lead to the next record; without them nothing can be told.
    for place in range(4, len(record)):
        changed = bytearray(record)
        changed[place] ^= 0x10
        batch = _read(bytes(changed), other)
        assert len(batch.damaged) == 1
        assert batch.table.column("body").to_pylist() == [b"a"]


def test_a_whole_record_whose_arrow_batch_lies_is_named_and_passed_over() -> None:
    [encoded] = BulkEncoder(codec="none").encode(pa.record_batch({"body": [b"a", b"b"]}))
    offsets = bytearray(encoded.stream)
    place = offsets.index(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]))
    offsets[place + 4] = 0x7F
    for body in (bytes(offsets), encoded.stream[:-40], b"no arrow"):
        batch = _read(_record(body, 0, {"INNER_NUM": "2"}, _BULK), _record(b"z", 2))
        assert batch.damaged[0].log_offset == 1000
        assert batch.table.column("body").to_pylist() == [b"z"]


@pytest.mark.parametrize("place", [{"topic": "u"}, {"queue_id": 1}, {"queue_offset": 99}, {"queue_offset": 1}])
def test_a_whole_record_of_another_place_is_never_given(place: dict[str, object]) -> None:
    where = {"topic": "t", "queue_id": 0, "queue_offset": 2, **place}
    other = encode_record(
        OutgoingMessage(str(where.pop("topic")), b"other", {}), **where, log_offset=5, store_timestamp_ms=1,
        store_host=Address("127.0.0.1", 1),
    )  # fmt: skip
    batch = _read(_bulk([b"0"], 0), _record(b"1", 1), other)
    assert batch.table.column("body").to_pylist() == [b"0", b"1"]
    assert [(damage.log_offset, "elsewhere" in damage.reason) for damage in batch.damaged] == [(5, True)]


def test_a_table_ends_before_it_grows_beyond_its_limit() -> None:
    zeros = pa.record_batch({"body": pa.array([bytes(10_000_000)] * 3, pa.binary())})
    [encoded] = BulkEncoder().encode(zeros)
    record = [_record(encoded.stream, offset, {"INNER_NUM": "3"}, _BULK) for offset in (0, 3, 6)]
    batch = _read(*record)
    assert (batch.table.num_rows, batch.next_offset) == (6, 6)
    assert batch.table.nbytes <= MAX_TABLE_BYTES
    assert _read(record[2], offset=6).next_offset == 99


def test_lengths_that_lead_outside_are_an_error() -> None:
    with pytest.raises(StoreError) as damage:
        _read(_record(b"a", 0)[:-1])
    assert damage.value.name == "RECORD_DAMAGED"
