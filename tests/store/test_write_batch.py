"""What one write lays out: where each record says that it stands, and what its queue has of it."""

from __future__ import annotations

from pathlib import Path

from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.record_encoder import PlainRecord
from millstream.store.consume_queue import tags_code
from millstream.store.message_store import MessageStore
from millstream.store.write_batch import AppendedRecord, PendingRecord, measure_stored

PEER = Address("192.0.2.7", 50312)


def plain(queue_id: int, body: bytes, tag: str = "") -> PlainRecord:
    held = {"TAGS": tag} if tag else {}
    text = f"TAGS\x01{tag}\x02".encode() if tag else b""
    return PlainRecord("orders", queue_id, body, held, text, 0, 5, PEER)


def test_a_plain_record_says_where_it_stands_as_the_place_of_another_record_does(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path)
    other = PendingRecord(OutgoingMessage("orders", b"other", {}), 1)
    records = [plain(0, b"a"), plain(1, b"b" * 50, "red"), other, plain(1, b"c", "red"), plain(1, b"d", "blue")]
    places = store.put(records)
    assert [place.queue_offset for place in places] == [0, 0, 1, 2, 3]
    assert [type(place) for place in places] == [PlainRecord, PlainRecord, AppendedRecord, PlainRecord, PlainRecord]
    assert places[0] is records[0]
    ends = [place.log_offset + place.size_bytes for place in places]
    assert [place.log_offset for place in places] == [0, *ends[:-1]]
    assert ends[-1] == store.written_log_offset
    assert len({place.store_timestamp_ms for place in places}) == 1
    entries = store.entries("orders", 1, 0, 9)
    assert [entry.log_offset for entry in entries] == [place.log_offset for place in places[1:]]
    assert [entry.size_bytes for entry in entries] == [place.size_bytes for place in places[1:]]
    assert [entry.tags_code for entry in entries] == [tags_code(tag) for tag in ("red", "", "red", "blue")]


def test_the_bytes_of_stored_records_and_of_the_largest_are_counted(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path)
    records = [plain(0, b"a"), plain(0, b"b" * 500), plain(1, b"")]
    store.put(records)
    total, largest = measure_stored(records)
    assert (total, largest) == (store.written_log_offset, records[1].size_bytes)
    assert measure_stored([]) == (0, 0)
