"""Hits from the sink that packs them to the reader behind: each once, in whole micro-batches, whatever is repeated."""

from __future__ import annotations

import datetime
import json
import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from example_counts import scaled

pytest.importorskip("pyspark", reason="needs the extra streams")

from hypothesis import given, settings
from hypothesis import strategies as st
from packed_topic import COLUMNS, PackedTopic, hits, told
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from millstream.model.errors import ConnectionFailed
from millstream.model.message import Message
from millstream.streams.connectors.rules import packed_reader
from millstream.streams.connectors.rules import packed_sink as packed
from millstream.streams.connectors.rules.packed_reader import PackedHitsReader, PackedHitsSpec
from millstream.streams.connectors.rules.packed_sink import PackedSink
from millstream.streams.plan.hits import HIT_COLUMNS
from millstream.streams.plan.types import Schema
from millstream.streams.rules.packed.packer import PackedColumns
from millstream.streams.rules.packed.record import BatchEnd, RowsHead, head_of, pack_end
from millstream.streams.spark.rules.task_report import TaskReport, report_spool
from millstream.streams.spark.sinks.sink import Attempt, SinkTask, Written
from millstream.streams.spark.source.dead_letters import malformed_spool
from millstream.streams.spark.source.position import Position, Slice
from millstream.streams.spark.source.rows import END_OF_TIME_MS
from millstream.streams.spark.source.spec import SourceColumn
from millstream.streams.spark.source.topic_log import Access

Rows = Sequence[tuple[str, int, str]]


class Judging:
    """The query that judges, as far as the sink knows it: micro-batches of hits, each divided among tasks."""

    def __init__(self, directory: Path, topic: PackedTopic, *, origin: str = "job") -> None:
        self.directory, self.topic, self.origin = directory, topic, origin

    def deliver(self, batch_id: int, *tasks: Rows, times_us: dict[str, int] | None = None) -> None:
        sink = PackedSink("hits_packed", Schema(()), "between", PackedColumns.of(COLUMNS), "n", timeout_s=1.0,
                          access=Access(), delay_us=2_000_000)  # fmt: skip
        sink.judged = self.directory / "judged"
        if times_us:
            report_spool(sink.judged).put(f"s/0-{batch_id}", [TaskReport(1, 1, times_us=times_us)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packed, "open_log", lambda *_args, **_more: self.topic)
            assert not sink.begin(Attempt(self.origin, batch_id, 0, self.directory / "notes"))
            written = []
            for number, rows in enumerate(tasks):
                task = SinkTask(self.origin, batch_id, number)
                writer = sink.writer(task)
                writer.write(hits(*rows))
                written.append(Written(task, len(rows), writer.finish()))
            sink.commit(batch_id, written)
        report_spool(sink.judged).clear()


class Counting:
    """The query behind, as far as the reader knows it: offsets that are kept, and micro-batches that may be repeated."""

    def __init__(self, topic: PackedTopic, *, max_rows: int = 0, spool: str = "", final: bool = False) -> None:
        columns = tuple(SourceColumn(name, HIT_COLUMNS[name]) for name in COLUMNS)
        self.spec = PackedHitsSpec("n", "between", columns, Position(name="hits_packed"), queues=True, origin="job",
                               max_rows=max_rows, parallelism=2, spool=spool, final_tick=final)  # fmt: skip
        self.topic = topic
        self.restart()
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def restart(self) -> None:
        self.reader = PackedHitsReader(self.spec)
        vars(self.reader)["_log"] = self.topic

    def step(self) -> list[Any] | None:
        """The record batches of a micro-batch; None where there is none."""
        limit = ReadMaxRows(self.spec.max_rows) if self.spec.max_rows else ReadAllAvailable()
        end = self.reader.latestOffset(self.offset, limit)
        if end == self.offset:
            return None
        # Spark keeps offsets as JSON.
        start, end = json.loads(json.dumps(self.offset)), json.loads(json.dumps(end))
        rows = self.rows(start, end)
        assert told(self.rows(start, end)) == told(rows)
        self.offset = end
        return rows

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(packed_reader, "open_log", lambda *_args, **_more: self.topic)
            reader = pickle.loads(pickle.dumps(self.reader))
            vars(self.reader)["_log"] = self.topic
            parts = [pickle.loads(pickle.dumps(part)) for part in self.reader.partitions(start, end)]
            return [batch for part in parts for batch in reader.read(part)]


def topic(queues: int = 2) -> PackedTopic:
    return PackedTopic({f"b/{number}": [] for number in range(queues)})


def of(*places: tuple[str, int]) -> list[tuple[str, int, str]]:
    """Hits of those source queues and offsets, of many keys."""
    return [(queue, offset, f"k{offset % 5}") for queue, offset in places]


def clocks(batches: Sequence[Any]) -> set[tuple[str, datetime.datetime]]:
    rows = [row for batch in batches for row in batch.to_pylist() if row["__tick"] is not None]
    return {(row["__queue"], row["event_time"]) for row in rows}


def test_hits_come_out_with_their_queues_and_the_times_of_all_events(tmp_path: Path) -> None:
    between = topic()
    places = [("s/0", number) for number in range(7)]
    times = {"s/0": 9_000_000, "s/1": 8_000_000}
    Judging(tmp_path, between).deliver(0, of(*places), of(("s/1", 3)), times_us=times)
    rows = Counting(between).step()
    assert rows is not None
    assert told(rows) == [*places, ("s/1", 3)]
    assert clocks(rows) == {
        (queue, datetime.datetime.fromtimestamp(time_us / 1e6, datetime.UTC)) for queue, time_us in times.items()
    }


def test_each_queue_of_the_topic_has_an_end_for_each_micro_batch_with_the_watermark(tmp_path: Path) -> None:
    between, judging = topic(), Judging(tmp_path, topic())
    judging.topic = between
    judging.deliver(0, of(("s/0", 1)), times_us={"s/0": 9_000_000})
    judging.deliver(1, times_us={"s/1": 5_000_000})
    judging.deliver(2, of(("s/0", 2)), times_us={"s/0": 10_000_000})
    heads = [head_of(message.body) for message in between.queues["b/1"]]
    ends = [head for head in heads if isinstance(head, BatchEnd)]
    assert [(end.batch_id, end.into, end.queues, end.watermark_us) for end in ends] == [
        (0, "b/1", ("b/0", "b/1"), 7_000_000), (1, "b/1", ("b/0", "b/1"), 3_000_000),
        (2, "b/1", ("b/0", "b/1"), 3_000_000),
    ]  # fmt: skip
    before = {head.batch_id: head.watermark_us for messages in between.queues.values() for message in messages
              if isinstance(head := head_of(message.body), RowsHead)}  # fmt: skip
    assert before == {0: None, 2: 3_000_000}


def test_a_micro_batch_that_has_not_ended_everywhere_is_not_read(tmp_path: Path) -> None:
    between = topic()
    Judging(tmp_path, between).deliver(0, of(*(("s/0", number) for number in range(9))))
    last = between.queues["b/1"].pop()
    counting = Counting(between)
    assert counting.step() is None
    between.queues["b/1"].append(last)
    rows = counting.step()
    assert rows is not None
    assert len(told(rows)) == 9
    assert counting.step() is None


def test_a_micro_batch_has_about_as_many_hits_as_it_may_and_one_whole_one_at_least(tmp_path: Path) -> None:
    between, judging = topic(), Judging(tmp_path, topic())
    judging.topic = between
    for batch_id in range(4):
        judging.deliver(batch_id, of(*(("s/0", batch_id * 10 + number) for number in range(10))))
    counting = Counting(between, max_rows=25)
    sizes = [len(told(rows)) for _ in range(3) if (rows := counting.step()) is not None]
    assert sizes == [20, 20]
    small = Counting(between, max_rows=1)
    assert [len(told(small.step() or [])) for _ in range(5)] == [10, 10, 10, 10, 0]


def test_a_send_that_fails_is_followed_by_the_rest_of_the_same_records(tmp_path: Path) -> None:
    between, judging = topic(), Judging(tmp_path, topic())
    judging.topic = between
    between.sends_left = 1
    with pytest.raises(ConnectionFailed):
        judging.deliver(0, of(*(("s/0", number) for number in range(9))))
    # Whatever the repeated tasks find now: what was begun is brought to its end.
    judging.deliver(0, of(("s/0", 99)))
    rows = Counting(between).step()
    assert rows is not None
    assert told(rows) == [("s/0", number) for number in range(9)]
    bodies = [message.body for messages in between.queues.values() for message in messages]
    assert len(bodies) == len(set(bodies))


def test_records_of_another_job_and_of_an_earlier_run_are_passed_over(tmp_path: Path) -> None:
    between = topic()
    Judging(tmp_path / "old", between, origin="old").deliver(0, of(("s/0", 1)), times_us={"s/0": 10**15})
    Judging(tmp_path / "new", between).deliver(0, of(("s/0", 2)))
    rows = Counting(between).step()
    assert rows is not None
    assert told(rows) == [("s/0", 2)]
    assert clocks(rows) == set()


def test_a_record_that_is_broken_is_told_and_the_others_count(tmp_path: Path) -> None:
    between = topic(1)
    judging = Judging(tmp_path, between)
    judging.deliver(0, of(("s/0", 1)))
    judging.deliver(1, of(("s/0", 2)))
    broken = between.queues["b/0"][0]
    broken.body = broken.body[:-1] + b"\0"
    between.queues["b/0"].insert(0, Message("between", b"what somebody else has sent"))
    rows = Counting(between, spool=str(tmp_path / "spool")).step()
    assert rows is not None
    assert told(rows) == [("s/0", 2)]
    letters = list(malformed_spool(tmp_path / "spool").take())
    assert [letter.queue_offset for letter in letters] == [0, 1]
    assert "something else writes to the topic" in letters[0].reason
    assert "its checksum is" in letters[1].reason


def test_a_bounded_run_ends_event_time_once_all_whole_micro_batches_are_read(tmp_path: Path) -> None:
    between = topic()
    Judging(tmp_path, between).deliver(0, of(("s/0", 1)))
    counting = Counting(between, final=True)
    counting.reader.prepareForTriggerAvailableNow()
    assert told(counting.step() or []) == [("s/0", 1)]
    ended = counting.step()
    assert ended is not None
    ticks = [row["__tick"].timestamp() for batch in ended for row in batch.to_pylist()]
    assert ticks == [END_OF_TIME_MS / 1000]
    assert counting.step() is None


def test_heads_are_read_once(tmp_path: Path) -> None:
    between = topic(1)
    judging = Judging(tmp_path, between)
    counting = Counting(between)
    judging.deliver(0, of(("s/0", 1)))
    counting.step()
    judging.deliver(1, of(("s/0", 2)))
    between.reads.clear()
    counting.reader.latestOffset(counting.offset, ReadAllAvailable())
    counting.reader.latestOffset(counting.offset, ReadAllAvailable())
    assert between.reads == [Slice("b/0", 2, 4)]


def test_ends_that_are_there_twice_hold_nothing_up(tmp_path: Path) -> None:
    between = topic(1)
    judging = Judging(tmp_path, between)
    judging.deliver(0, of(("s/0", 1)), times_us={"s/0": 1_000_000})
    counting = Counting(between)
    counting.step()
    between.queues["b/0"].append(Message("between", pack_end(BatchEnd("job", 0, "b/0", ("b/0",), {"s/0": 1}))))
    assert counting.step() is None
    judging.deliver(1, of(("s/0", 2)))
    rows = counting.step()
    assert rows is not None
    assert told(rows) == [("s/0", 2)]
    assert clocks(rows) == set()


@settings(max_examples=scaled(40))
@given(st.data())
def test_every_hit_is_counted_once_whatever_is_killed_and_when(data: st.DataObject) -> None:
    """Sends that fail at any record, tasks divided anew, and brokers by whose records nobody knows what was sent."""
    between = topic(data.draw(st.integers(1, 3)))
    between.keeps_properties = data.draw(st.booleans())
    counting = Counting(between, max_rows=data.draw(st.sampled_from([0, 1, 6])))
    wanted: list[tuple[str, int]] = []
    found: list[tuple[str, int]] = []
    ends = {"s/0": 0, "s/1": 0}
    with tempfile.TemporaryDirectory() as directory:
        judging = Judging(Path(directory), between)
        for batch_id in range(data.draw(st.integers(1, 4))):
            rows = []
            for queue in ends:
                count = data.draw(st.integers(0, 6))
                rows += [(queue, ends[queue] + number) for number in range(count)]
                ends[queue] += count
            wanted += rows
            for _ in range(data.draw(st.integers(0, 2))):
                between.sends_left = data.draw(st.integers(0, 4))
                if not _delivered(judging, batch_id, rows, data.draw(st.integers(0, len(rows)))):
                    found += told(counting.step() or [])
            between.sends_left = None
            assert _delivered(judging, batch_id, rows, data.draw(st.integers(0, len(rows))))
            if data.draw(st.booleans()):
                counting.restart()
            found += told(counting.step() or [])
        while (more := counting.step()) is not None:
            found += told(more)
    assert sorted(found) == sorted(wanted)


def _delivered(judging: Judging, batch_id: int, rows: list[tuple[str, int]], cut: int) -> bool:
    try:
        judging.deliver(batch_id, of(*rows[:cut]), of(*rows[cut:]))
    except ConnectionFailed:
        return False
    return True
