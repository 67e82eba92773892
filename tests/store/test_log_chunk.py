"""A store takes the bytes of another one's log: the same log, the same queues, and nothing that is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from store_samples import SMALL, bodies, pending

from millstream.model.errors import StoreError
from millstream.store.log_chunk import check_chunk
from millstream.store.message_store import MessageStore

REPLICATED = replace(SMALL, replicated=True)
LIGHT_QUEUES = ("%LMQ%mqtt-a", "%LMQ%b")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[MessageStore]:
    with closing(MessageStore.open(tmp_path / "source", SMALL)) as store:
        for number in range(40):
            topic = ("orders", "bills")[number % 3 == 0]
            body, light_queues = b"%d" % number * (1 + number * 7 % 90), LIGHT_QUEUES[: number % 3]
            store.put([pending(body, topic=topic, queue_id=number % 2, tag="a", light_queues=light_queues)])
        yield store


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[MessageStore]:
    with closing(MessageStore.open(tmp_path / "replica", REPLICATED)) as store:
        yield store


def segments(directory: Path) -> dict[str, bytes]:
    """The bytes of each segment by its name."""
    return {path.name: path.read_bytes() for path in (directory / "commitlog").iterdir()}


def copy(source: MessageStore, replica: MessageStore, max_bytes: int) -> int:
    """The number of chunks that it took."""
    chunks = 0
    while (chunk := source.read_chunk(replica.written_log_offset, max_bytes)).records:
        replica.append_chunk(chunk.log_offset, bytes(chunk.records))
        chunks += 1
    return chunks


@pytest.mark.parametrize("max_bytes", [1, 500, 1000, 1_000_000])
def test_chunks_of_any_size_make_the_same_log(
    source: MessageStore, replica: MessageStore, tmp_path: Path, max_bytes: int
) -> None:
    chunks = copy(source, replica, max_bytes)
    assert chunks == 40 if max_bytes == 1 else chunks < 40
    assert replica.written_log_offset == source.written_log_offset
    replica.confirm(source.written_log_offset)
    for topic in ("orders", "bills"):
        for queue_id in (0, 1):
            assert bodies(replica, topic, queue_id) == bodies(source, topic, queue_id)
    for name in LIGHT_QUEUES:
        assert bodies(replica, name)
        assert bodies(replica, name) == bodies(source, name)
    assert len(segments(tmp_path / "source")) > 2
    assert segments(tmp_path / "replica") == segments(tmp_path / "source")


def test_a_replica_shows_what_is_confirmed_alone(source: MessageStore, replica: MessageStore) -> None:
    copy(source, replica, 400)
    assert bodies(replica) == []
    replica.confirm(source.written_log_offset // 2)
    shown = bodies(replica)
    assert 0 < len(shown) < len(bodies(source))
    assert shown == bodies(source)[: len(shown)]


def test_a_replica_that_starts_again_goes_on_where_it_was(source: MessageStore, tmp_path: Path) -> None:
    with closing(MessageStore.open(tmp_path / "replica", REPLICATED)) as replica:
        copy(source, replica, 400)
        replica.confirm(source.written_log_offset)
    source.put([pending(b"later")])
    with closing(MessageStore.open(tmp_path / "replica", REPLICATED)) as replica:
        copy(source, replica, 400)
        replica.confirm(source.written_log_offset)
        assert bodies(replica) == bodies(source)


def test_a_replica_that_was_promoted_writes_on(source: MessageStore, replica: MessageStore) -> None:
    copy(source, replica, 1000)
    replica.confirm(source.written_log_offset)
    expected = bodies(source)
    replica.put([pending(b"mine")])
    replica.confirm(replica.written_log_offset)
    assert bodies(replica) == [*expected, b"mine"]


def test_of_a_damaged_chunk_nothing_is_written(source: MessageStore, replica: MessageStore) -> None:
    chunk = source.read_chunk(0, 1000)
    data = bytearray(chunk.records)
    data[-3] ^= 1
    with pytest.raises(StoreError) as refused:
        replica.append_chunk(0, bytes(data))
    assert refused.value.name == "RECORD_DAMAGED"
    assert replica.written_log_offset == 0
    replica.append_chunk(0, bytes(chunk.records))
    assert replica.written_log_offset == chunk.end


def test_what_lies_behind_damage_in_an_older_segment_is_not_passed_over(source: MessageStore, tmp_path: Path) -> None:
    first = source.read_chunk(0, 1)
    with (tmp_path / "source" / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(first.end)
        file.write(b"\x7f\xff\xff\xff")
    with pytest.raises(StoreError) as refused:
        source.read_chunk(first.end, 1000)
    assert refused.value.name == "RECORD_DAMAGED"


def test_a_chunk_of_another_place_is_refused(source: MessageStore, replica: MessageStore) -> None:
    first = source.read_chunk(0, 1000)
    second = source.read_chunk(first.end, 1000)
    with pytest.raises(ValueError, match="does not follow"):
        replica.append_chunk(second.log_offset, bytes(second.records))
    with pytest.raises(StoreError, match="cannot be copied"):
        replica.append_chunk(0, bytes(second.records))


def test_a_chunk_ends_before_the_named_offset(source: MessageStore) -> None:
    first = source.read_chunk(0, 1)
    assert source.read_chunk(0, 1_000_000, first.end) == first
    assert not source.read_chunk(first.end, 1_000_000, first.end).records


def test_a_log_that_ends_where_a_segment_does_gives_records_and_no_end_mark(source: MessageStore) -> None:
    end = SMALL.segment_bytes
    chunk = source.read_chunk(0, 1_000_000, end)
    check_chunk(bytes(chunk.records), 0)
    assert chunk.records
    assert chunk.end < end
    behind = source.read_chunk(chunk.end, 1_000_000, end)
    assert (behind.log_offset, bytes(behind.records)) == (end, b"")
