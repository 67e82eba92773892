"""Workers that read cold messages from the object store give the very rows that the broker gives."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyarrow as pa

from cold_topics import ColdServers, cold_servers
from millstream.client.bulk.encoding import BulkEncoder
from millstream.model.message import OutgoingMessage, SystemFlag
from millstream.model.topic import MessageType, TopicConfig
from millstream.protocol.checksum import CheckedMessage
from millstream.protocol.remoting.codes import RequestCode
from millstream.streams.connectors.rocketmq.reader import TopicBatchReader, TopicStreamReader, read_partition
from millstream.streams.plan.types import BIGINT, INT, STRING, DataType, TypeKind
from millstream.streams.spark.source.client_log import ClientLog
from millstream.streams.spark.source.cold_log import Detours, detour_spool
from millstream.streams.spark.source.cold_pieces import ColdSpan, pieces_of
from millstream.streams.spark.source.cold_times import ColdTimes
from millstream.streams.spark.source.dead_letters import malformed_spool
from millstream.streams.spark.source.position import Position, Slice
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec
from millstream.streams.spark.source.topic_partition import TopicPartition
from millstream.tiered.places import ObjectPlace

COUNT = 800
QUEUES = 2
COLUMNS = (
    SourceColumn("id", INT),
    SourceColumn("queue", INT, "queue-id"),
    SourceColumn("at", BIGINT, "queue-offset"),
    SourceColumn("tag", STRING, "tag"),
    SourceColumn("keys", STRING, "keys"),
    SourceColumn("born", BIGINT, "born-timestamp"),
    SourceColumn("stored", BIGINT, "store-timestamp"),
    SourceColumn("properties", DataType(TypeKind.MAP, elements=(STRING, STRING)), "properties"),
)


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ColdServers]:
    messages = [
        OutgoingMessage(
            "t",
            b"no json" if number % 97 == 5 else json.dumps({"id": number, "text": "x" * 60}).encode(),
            {"TAGS": "abc"[number % 3], "KEYS": f"k{number}", "colour": f"c{number % 5}"},
            queue_id=number % QUEUES,
        )
        for number in range(COUNT)
    ]
    config = TopicConfig("t", read_queues=QUEUES, write_queues=QUEUES)
    with cold_servers(tmp_path_factory.mktemp("cold"), messages, config) as running:
        assert all(100 < offset < COUNT // QUEUES for offset in running.disk_offsets)
        yield running


def spec(cold: ColdServers, directory: Path, *, tag: str = "*", how: str = "direct") -> SourceSpec:
    return SourceSpec(
        cold.servers.nameserver,
        "t",
        COLUMNS,
        Position(),
        Position({f"broker-a/{queue}": COUNT // QUEUES for queue in range(QUEUES)}),
        tag=tag,
        spool=str(directory / "spool"),
        cold=how,
        parallelism=3,
    )


def tasks_of(asked: SourceSpec) -> list[TopicPartition]:
    return [task for task in TopicBatchReader(asked).partitions() if isinstance(task, TopicPartition)]


def rows(asked: SourceSpec, tasks: list[TopicPartition]) -> list[dict[str, object]]:
    return [row for task in tasks for batch in read_partition(asked, task) for row in batch.to_pylist()]


def cut(tasks: list[TopicPartition], parts: list[Slice], *, bulk: bool = False) -> list[TopicPartition]:
    """The tasks with other slices, which know of the same objects."""
    spans: dict[str, list[ColdSpan]] = {}
    for piece in (piece for task in tasks for pieces in task.cold.values() for piece in pieces):
        spans.setdefault(piece.queue, []).append(ColdSpan(piece.place, (piece.where,), piece.end))
    return [TopicPartition(tuple(parts), bulk=bulk, cold=pieces_of([parts], spans)[0])]


@pytest.mark.parametrize("tag", ["*", "a||c", "none"])
def test_cold_rows_are_those_that_the_broker_gives_and_cost_it_nothing(
    cold: ColdServers, tmp_path: Path, tag: str
) -> None:
    direct = spec(cold, tmp_path / "direct", tag=tag)
    by_broker = spec(cold, tmp_path / "broker", tag=tag, how="broker")
    before = cold.blocks_read
    tasks = tasks_of(direct)
    assert any(task.cold for task in tasks)
    found = rows(direct, tasks)
    assert cold.blocks_read == before
    assert not list(detour_spool(Path(direct.spool)).take())
    assert found == rows(by_broker, tasks_of(by_broker))
    assert found or tag == "none"
    refused = [list(malformed_spool(Path(one.spool)).take()) for one in (direct, by_broker)]
    assert refused[0] == refused[1]


def test_slices_that_begin_and_end_anywhere_have_the_same_rows(cold: ColdServers, tmp_path: Path) -> None:
    direct, tasks = spec(cold, tmp_path), tasks_of(spec(cold, tmp_path))
    border = cold.disk_offsets[0]
    ends = [0, 1, 37, 38, 100, border - 1, border, border + 1, COUNT // QUEUES]
    parts = [Slice("broker-a/0", *pair) for pair in pairwise(ends)]
    assert rows(direct, cut(tasks, parts)) == rows(direct, [TopicPartition(tuple(parts))])


def test_micro_batches_have_the_same_cuts_and_rows_either_way(cold: ColdServers, tmp_path: Path) -> None:
    found = []
    for how in ("direct", "broker"):
        asked = replace(spec(cold, tmp_path / how, how=how), end=None, max_rows=150)
        reader = TopicStreamReader(asked)
        reader.prepareForTriggerAvailableNow()
        position, seen, before = reader.initialOffset(), [], cold.blocks_read
        while (end := reader.latestOffset(position, reader.getDefaultReadLimit())) != position:
            tasks = [task for task in reader.partitions(position, end) if isinstance(task, TopicPartition)]
            assert how == "direct" or not any(task.cold for task in tasks)
            seen.append((end, rows(asked, tasks)))
            position = end
        reader.stop()
        # Neither rows nor cuts want anything cold of the broker.
        assert (cold.blocks_read == before) is (how == "direct")
        found.append(seen)
    assert len(found[0]) > 4
    assert found[0] == found[1]


@pytest.mark.parametrize("harm", ["no directory", "no objects", "damaged"])
def test_what_a_worker_cannot_read_comes_through_the_broker_with_a_detour(
    cold: ColdServers, tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked, other = spec(cold, tmp_path), tmp_path / "objects"
    tasks = tasks_of(asked)
    expected = rows(asked, tasks)
    if harm != "no directory":
        shutil.copytree(cold.objects, other)
        for path in [path for path in other.rglob("*.msc") if path.is_file()]:
            if harm == "no objects":
                path.unlink()
            else:
                data = bytearray(path.read_bytes())
                data[len(data) // 3] ^= 1
                path.write_bytes(data)
    for task in tasks:
        task.cold = {
            part: tuple(replace(piece, place=ObjectPlace(f"file://{other}")) for piece in pieces)
            for part, pieces in task.cold.items()
        }
    assert rows(asked, tasks) == expected
    detours = Detours("orders", detour_spool(Path(asked.spool)))
    count, reason = detours.take()
    assert 0 < count <= sum(cold.disk_offsets)
    assert harm == "damaged" or count == sum(cold.disk_offsets)
    assert "orders" in reason
    assert {"no directory": "no directory", "no objects": "has no object", "damaged": "damaged"}[harm] in reason
    warnings = [one for one in caplog.records if "through the broker" in one.getMessage()]
    assert len(warnings) == (1 if harm == "no directory" else 0)


@pytest.mark.parametrize("is_seen", [True, False])
def test_times_of_the_store_are_those_that_the_broker_tells(cold: ColdServers, tmp_path: Path, is_seen: bool) -> None:
    log = ClientLog(cold.servers.nameserver, timeout_s=10.0)
    queue, whole = "broker-a/0", Slice("broker-a/0", 0, COUNT // QUEUES)

    def spans(_: str) -> Sequence[ColdSpan]:
        told = log.cold_spans("t", whole, bulk=True)
        return told if is_seen else [replace(one, place=ObjectPlace(f"file://{tmp_path}/missing")) for one in told]

    try:
        times, before = ColdTimes(log, "t", spans), cold.blocks_read
        offsets = [0, 1, 57, cold.disk_offsets[0] - 1, cold.disk_offsets[0], COUNT // QUEUES - 1]
        stored = [times.stored_ms(queue, offset) for offset in offsets]
        assert stored == sorted(stored, key=int)  # type: ignore[arg-type]
        wanted = [one + more for one in stored if one is not None for more in (-1, 0, 1)]
        found = [times.offset_at(queue, time_ms) for time_ms in wanted]
        assert (cold.blocks_read == before) is is_seen
        assert found == [log.offset_at("t", queue, time_ms) for time_ms in wanted]
        assert found[1::3] == offsets
    finally:
        log.close()


def test_a_broker_that_does_not_know_the_request_gives_all_itself(cold: ColdServers, tmp_path: Path) -> None:
    handlers: dict[int, object] = cold.servers.broker_server.handlers  # type: ignore[assignment]
    handler = handlers.pop(RequestCode.COLD_RANGES)
    try:
        assert not any(task.cold for task in tasks_of(spec(cold, tmp_path)))
    finally:
        handlers[RequestCode.COLD_RANGES] = handler


def test_bulk_messages_come_from_the_store_as_they_come_by_the_bulk_lane(tmp_path: Path) -> None:
    messages = [_arrow_message(number) for number in range(120)]
    config = TopicConfig("t", read_queues=1, write_queues=1, attributes={"queue.type": "BatchCQ"})
    with cold_servers(tmp_path, messages, config) as cold:
        whole = Position({"broker-a/0": 120 * _BATCH})
        asked = replace(spec(cold, tmp_path / "direct", tag="a"), end=whole)
        tasks = tasks_of(asked)
        assert all(task.bulk for task in tasks)
        assert any(task.cold for task in tasks)
        before = cold.blocks_read
        found = rows(asked, tasks)
        assert cold.blocks_read == before
        assert not list(detour_spool(Path(asked.spool)).take())
        by_broker = replace(spec(cold, tmp_path / "broker", tag="a", how="broker"), end=whole)
        assert found == rows(by_broker, tasks_of(by_broker))
        assert len(found) == 120 * _BATCH // 2
        log = ClientLog(cold.servers.nameserver, timeout_s=10.0)
        times = ColdTimes(log, "t", lambda _: log.cold_spans("t", Slice("broker-a/0", 0, 120 * _BATCH), bulk=True))
        at = times.stored_ms("broker-a/0", 3 * _BATCH + 2)
        assert at is not None
        assert times.offset_at("broker-a/0", at) == 3 * _BATCH == log.offset_at("t", "broker-a/0", at)
        log.close()
        ends = [1, 2, _BATCH, 3 * _BATCH + 1, 50 * _BATCH - 1, 119 * _BATCH + 3]
        parts = [Slice("broker-a/0", *pair) for pair in pairwise(ends)]
        assert rows(asked, cut(tasks, parts, bulk=True)) == rows(asked, [TopicPartition(tuple(parts), bulk=True)])


_BATCH = 6


def _arrow_message(number: int) -> OutgoingMessage:
    rows = pa.record_batch(
        {
            "body": [json.dumps({"id": number * _BATCH + row, "pad": "y" * 40}).encode() for row in range(_BATCH)],
            "key": [f"k{number}"] * _BATCH,
            "tag": ["ab"[row % 2] for row in range(_BATCH)],
            "properties": ["colour\x01red\x02"] * _BATCH,
        }
    )
    [batch] = BulkEncoder(max_rows=_BATCH).encode(rows)
    flags = SystemFlag.INNER_BATCH | SystemFlag.ARROW_BATCH
    return CheckedMessage("t", batch.stream, {}, MessageType.NORMAL, 0, flags, message_count=_BATCH, crc32=batch.crc32)
