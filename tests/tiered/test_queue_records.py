"""What goes up of the log is what a look at each record says: queues, offsets, keys, and no damaged record."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.message import Address, OutgoingMessage, SystemFlag
from millstream.protocol.record import encode_record, outline_record, verify_record
from millstream.protocol.remoting.messages.batch import encode_batch_item
from millstream.store.consume_queue import tags_code
from millstream.store.index.record_keys import keys_of, walked_records
from millstream.store.index.run import key_hash
from millstream.tiered.queue_records import GatheredRecords, QueueRecords, places_of, split_records

BEGIN = 1 << 33
HOSTS = [Address("192.0.2.7", 10911), Address("2001:db8::1", 10911)]
GOING = {"orders": 0, "x" * 140: 0, "renewed": BEGIN + 600}

names = st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS", "INNER_NUM", "NOT_KEYS", "own"])
values = st.sampled_from(["", "k1", "k1 k2", " k1  k2 ", "3", "007", "0", "UNIQ_KEY", "ä"])
items = st.lists(st.tuples(st.binary(max_size=9), st.dictionaries(names, values, max_size=2)), min_size=1, max_size=3)
flags = st.sampled_from([*([SystemFlag.NONE] * 6), SystemFlag.INNER_BATCH, SystemFlag.TRANSACTION_ROLLBACK])
messages = st.tuples(
    st.sampled_from([*GOING, "stays"]),
    st.integers(0, 2),
    st.one_of(st.binary(max_size=60), items),
    st.dictionaries(names, values, max_size=4),
    flags,
    st.sampled_from([HOSTS[0], HOSTS[0], HOSTS[1]]),
)


class Found(NamedTuple):
    """A record as a look at it alone says it is."""

    data: bytes
    queue_offset: int
    next_queue_offset: int
    log_offset: int
    stored_ms: int
    keys: list[int]


def laid_out(drawn: list[tuple[str, int, object, dict[str, str], SystemFlag, Address]]) -> list[bytes]:
    """Records as the log has them from BEGIN on; offsets go up by 10, as room for those with several messages."""
    records: list[bytes] = []
    log_offset = BEGIN
    for number, (topic, queue_id, body, held, flag, host) in enumerate(drawn):
        packed = body if isinstance(body, bytes) else b"".join(encode_batch_item(*item) for item in body)  # type: ignore[misc,attr-defined]
        message = OutgoingMessage(topic, packed, held, system_flag=flag, born_host=host)
        record = encode_record(
            message,
            queue_id=queue_id,
            queue_offset=number * 10,
            log_offset=log_offset,
            store_timestamp_ms=1_700_000_000_000 + number % 5,
            store_host=host,
        )
        records.append(record)
        log_offset += len(record)
    return records


def looked_at(records: list[bytes]) -> dict[tuple[str, int], list[Found]]:
    """Record by record, with the slow readers of a record."""
    found: dict[tuple[str, int], list[Found]] = {}
    for record in records:
        outline = outline_record(record)
        first = GOING.get(outline.topic)
        if first is None or outline.log_offset < first:
            continue
        [(log_offset, _, stored_ms, name, text)], _ = walked_records(record, outline.log_offset)
        keys = sorted(key_hash(name, key) for key in keys_of(text))
        following = outline.queue_offset + (outline.batch_count or 1)
        one = Found(record, outline.queue_offset, following, log_offset, stored_ms, keys)
        found.setdefault((outline.topic, outline.queue_id), []).append(one)
    return found


def check(queues: list[QueueRecords], expected: dict[tuple[str, int], list[Found]]) -> None:
    assert [(queue.topic, queue.queue_id) for queue in queues] == sorted(expected)
    for queue in queues:
        wanted = expected[queue.topic, queue.queue_id]
        [part] = queue.parts
        assert b"".join(block.raw for block in part.blocks) == b"".join(one.data for one in wanted)
        rest = iter(wanted)
        for number, block in enumerate(part.blocks):
            records = [next(rest) for _ in range(block.records)]
            assert (block.first_queue_offset, block.next_queue_offset) == (
                records[0].queue_offset,
                records[-1].next_queue_offset,
            )
            assert (block.first_log_offset, block.last_log_offset) == (records[0].log_offset, records[-1].log_offset)
            times = [one.stored_ms for one in records]
            assert (block.first_stored_ms, block.last_stored_ms) == (min(times), max(times))
            for place, one in enumerate(records):
                code = number << 16 | place
                assert sorted(key >> 32 for key in part.keys if key & 0xFFFFFFFF == code) == one.keys


@given(st.lists(messages, max_size=30), st.integers(700, 4000))
def test_each_record_comes_to_its_queue_as_a_look_at_it_says(
    drawn: list[tuple[str, int, object, dict[str, str], SystemFlag, Address]], piece_bytes: int
) -> None:
    records = laid_out(drawn)
    log = b"".join(records)
    gathered, at = GatheredRecords(GOING.get), 0
    while at < len(log):
        taken = gathered.take(log[at : at + piece_bytes], BEGIN + at) or gathered.take(log[at:], BEGIN + at)
        assert taken
        at += taken
    check(gathered.finish(), looked_at(records))


@given(st.lists(messages, min_size=1, max_size=8), st.data())
def test_a_changed_byte_ends_the_taking_before_its_record(
    drawn: list[tuple[str, int, object, dict[str, str], SystemFlag, Address]], data: st.DataObject
) -> None:
    records = laid_out(drawn)
    log = bytearray(b"".join(records))
    log[data.draw(st.integers(0, len(log) - 1))] ^= data.draw(st.integers(1, 255))
    at, whole = 0, []
    for record in records:
        one = bytes(log[at : at + len(record)])
        if not verify_record(one):
            break
        whole.append(one)
        at += len(one)
    gathered = GatheredRecords(GOING.get)
    assert gathered.take(bytes(log), BEGIN) == at
    check(gathered.finish(), looked_at(whole))


def test_a_record_of_another_place_of_the_log_is_not_taken() -> None:
    [record] = laid_out([("orders", 0, b"body", {}, SystemFlag.NONE, HOSTS[0])])
    assert GatheredRecords(GOING.get).take(record, BEGIN + 1) == 0


@given(st.lists(messages, max_size=8), st.data())
def test_the_records_of_a_block_are_taken_apart_as_one_by_one_and_none_that_is_damaged(
    drawn: list[tuple[str, int, object, dict[str, str], SystemFlag, Address]], data: st.DataObject
) -> None:
    records = laid_out(drawn)
    block = b"".join(records)
    assert [*map(bytes, split_records(block) or ())] == records
    outlines = [outline_record(record) for record in records]
    assert places_of(block) == [
        (one.queue_offset, one.log_offset, len(record), tags_code(one.tag), one.batch_count or 1)
        for one, record in zip(outlines, records, strict=True)
    ]
    if block:
        altered = bytearray(block)
        altered[data.draw(st.integers(0, len(block) - 1))] ^= data.draw(st.integers(1, 255))
        assert split_records(bytes(altered)) is None
        assert split_records(block[: data.draw(st.integers(1, len(block))) - 1] or b"x") != records
