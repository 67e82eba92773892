"""A verified block gives the records that a look at each of them would find, by offset, place in the log and time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.message import OutgoingMessage
from millstream.protocol.checksum import crc32
from millstream.protocol.record import encode_record
from millstream.store.consume_queue import tags_code
from millstream.tiered.checked_block import CheckedBlock, check_block
from millstream.tiered.chunk import BlockInfo, pack_frame

mostly_one = st.sampled_from([1] * 8 + [2, 3])
steps = st.tuples(mostly_one, mostly_one, st.integers(0, 60), st.sampled_from(["", "a"]))
"""How many offsets a record leaves out or has messages for, the bytes of its body, and its tag."""


def block_of(drawn: list[tuple[int, int, int, str]]) -> tuple[CheckedBlock, list[tuple[int, int, bytes, str, int]]]:
    """A block, and of each record: queue offset, log offset, bytes, tag and messages."""
    records, queue_offset, log_offset = [], 0, 1000
    for gap, count, body_bytes, tag in drawn:
        queue_offset += gap - 1
        held = ({"TAGS": tag} if tag else {}) | ({"INNER_NUM": str(count)} if count > 1 else {})
        record = encode_record(
            OutgoingMessage("t", b"x" * body_bytes, held),
            queue_id=0,
            queue_offset=queue_offset,
            log_offset=log_offset,
            store_timestamp_ms=1000 + len(records) // 2,
            store_host=OutgoingMessage("t", b"", {}).born_host,
        )
        records.append((queue_offset, log_offset, record, tag, count))
        queue_offset += count
        log_offset += len(record) + 8
    raw = b"".join(record for _, _, record, _, _ in records)
    frame = pack_frame(raw)
    info = BlockInfo(0, len(frame), len(raw), crc32(frame), len(records), 0, queue_offset, 0, 0, 0, 0)
    return CheckedBlock(0, queue_offset, *check_block("k", info, frame)), records


@given(st.lists(steps, min_size=4, max_size=12), st.integers(0, 5), st.integers(5, 20), st.integers(1, 8))
def test_entries_are_those_of_the_records_with_messages_in_the_range(
    drawn: list[tuple[int, int, int, str]], begin: int, end: int, max_count: int
) -> None:
    block, records = block_of(drawn)
    expected = [one for one in records if one[0] + one[4] > begin and one[0] < end][:max_count]
    found = block.entries_from(begin, end, max_count)
    assert [
        (one.queue_offset, one.log_offset, bytes(one.record), one.tags_code, one.message_count) for one in found
    ] == [(offset, log_offset, record, tags_code(tag), count) for offset, log_offset, record, tag, count in expected]
    assert [*map(bytes, block.records)] == [record for _, _, record, _, _ in records]


@given(
    st.lists(steps, min_size=4, max_size=12), st.integers(0, 5), st.integers(5, 20), st.integers(1, 8),
    st.integers(0, 1500),
)  # fmt: skip
def test_a_run_is_whole_records_of_one_message_each_without_a_gap(
    drawn: list[tuple[int, int, int, str]], begin: int, end: int, max_count: int, max_bytes: int
) -> None:
    block, records = block_of(drawn)
    run = block.run_from(begin, end, max_count, max_bytes)
    wanted = [one for one in records if one[0] >= begin and one[0] < end][:max_count]
    fitting: list[bytes] = []
    for _, _, record, _, _ in wanted:
        if fitting and sum(map(len, fitting)) + len(record) > max_bytes:
            break
        fitting.append(record)
    is_plain = all(one[0] == begin + place and one[4] == 1 for place, one in enumerate(wanted[: len(fitting)]))
    covered = any(one[0] < begin < one[0] + one[4] for one in records)
    if not fitting or not is_plain or covered:
        assert run is None
    else:
        assert run is not None
        starts = [0, *run.ends]
        assert [bytes(run.data[start:stop]) for start, stop in zip(starts, run.ends, strict=False)] == fitting
        assert len(run.data) == run.ends[-1]


@given(st.lists(steps, min_size=1, max_size=12), st.integers(990, 2500), st.integers(999, 1010))
def test_a_record_is_found_by_its_place_in_the_log_and_by_time(
    drawn: list[tuple[int, int, int, str]], log_offset: int, stored_ms: int
) -> None:
    block, records = block_of(drawn)
    for one in records:
        found = block.find_log_offset(one[1])
        assert found is not None
        assert bytes(found) == one[2]
    if log_offset not in {one[1] for one in records}:
        assert block.find_log_offset(log_offset) is None
    later = [one[0] for place, one in enumerate(records) if 1000 + place // 2 >= stored_ms]
    assert block.offset_at(stored_ms) == (later[0] if later else None)


def test_an_empty_block_has_nothing() -> None:
    block = CheckedBlock(3, 9)
    assert not len(block)
    assert block.entries_from(0, 100, 10) == []
    assert block.run_from(3, 100, 10, 100) is None
    assert block.find_log_offset(0) is None
    assert block.offset_at(0) is None


def test_a_run_does_not_begin_within_a_record_of_several_messages() -> None:
    block, _ = block_of([(1, 2, 10, ""), (1, 1, 10, ""), (1, 1, 10, "")])
    assert block.run_from(1, 100, 10, 10_000) is None
    assert block.run_from(2, 100, 10, 10_000) is not None


def test_others_may_run_between_the_steps_of_reading_a_block() -> None:
    raw = b"".join([one for _, _, one, _, _ in block_of([(1, 1, 10, "")] * 4)[1]])
    frame = pack_frame(raw)
    calls: list[str] = []
    info = BlockInfo(0, len(frame), len(raw), crc32(frame), 4, 0, 4, 0, 0, 0, 0)
    assert check_block("k", info, frame, lambda: calls.append("others"))[0] == raw
    # Before it is unpacked, before its records are verified, and before their places are noted.
    assert len(calls) == 3
