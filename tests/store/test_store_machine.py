"""The store against a plain model, over any order of puts, flushes, stops, crashes, torn ends and deletions."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from crash.file_twins import HastyFiles
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from store_samples import SMALL, pending, queue_content

from example_counts import scaled
from millstream.model.clock import ManualClock
from millstream.model.filter import java_hash_code
from millstream.store.message_store import MessageStore
from millstream.store.write_batch import AppendedRecord, PendingRecord

TOPICS = ("orders", "%RETRY%orders")
LIGHT_QUEUES = ("%LMQ%mqtt-a", "%LMQ%b")
SENDINGS = st.lists(
    st.builds(
        pending,
        st.one_of(st.binary(max_size=60), st.integers(300, 1500).map(bytes)),
        topic=st.sampled_from(TOPICS),
        queue_id=st.integers(0, 2),
        tag=st.sampled_from([None, "a", "béta"]),
        light_queues=st.lists(st.sampled_from(LIGHT_QUEUES), unique=True).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


class StoreMachine(RuleBasedStateMachine):
    """`stored` is the model: what was put, in order, with the place that the store gave it."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(prefix="millstream-test-", dir=memory if memory.is_dir() else None))
        self.clock = ManualClock(step_ms=1)
        self.runs = 0
        self.stored: list[tuple[PendingRecord, AppendedRecord]] = []
        self.deleted = dict.fromkeys((*TOPICS, *LIGHT_QUEUES), 0)
        self.checkpointed = 0

    def _open(self, directory: Path) -> MessageStore:
        return MessageStore.open(directory, SMALL, clock=self.clock, files=HastyFiles())

    @initialize()
    def start(self) -> None:
        self.store = self._open(self.root / "0")

    @rule(records=SENDINGS)
    def put(self, records: list[PendingRecord]) -> None:
        appended = self.store.put(records)
        assert len({record.store_timestamp_ms for record in appended}) == 1
        for record, place in zip(records, appended, strict=True):
            assert place.queue_offset == len(self._queue(record.message.topic, record.queue_id))
            self.stored.append((record, place))

    @rule()
    def flush(self) -> None:
        self.store.flush()
        assert self.store.flushed_log_offset == self.store.written_log_offset

    @rule()
    def checkpoint(self) -> None:
        self.store.write_checkpoint()
        self.checkpointed = self.store.written_log_offset

    @rule(topic=st.sampled_from((*TOPICS, *LIGHT_QUEUES)))
    def delete(self, topic: str) -> None:
        self.store.delete_topic(topic)
        self.deleted[topic] = len(self.stored)

    @rule()
    def stop_and_start(self) -> None:
        self.store.close()
        self.store = self._open(self.root / str(self.runs))
        self.checkpointed = self.store.written_log_offset
        assert self.store.was_clean_stop
        assert self.store.recovery.scanned_records == 0

    @rule()
    def crash(self) -> None:
        self._crash(None, b"")

    @property
    def known_offset(self) -> int:
        """Below it the log was on the disk, so that a tear there is no crash's doing: a start refuses it."""
        return max(self.checkpointed, self.store.flushed_log_offset)

    @precondition(lambda self: self.store.written_log_offset > self.known_offset)
    @rule(data=st.data(), garbage=st.binary(max_size=30))
    def crash_with_a_torn_end(self, data: st.DataObject, garbage: bytes) -> None:
        self._crash(data.draw(st.integers(self.known_offset, self.store.written_log_offset - 1)), garbage)

    @rule()
    def lose_the_consume_queues(self) -> None:
        directory = self._copy()
        shutil.rmtree(directory / "consumequeue")
        self._replace(directory)

    def _crash(self, cut: int | None, garbage: bytes) -> None:
        directory = self._copy()
        if cut is not None:
            for path in sorted((directory / "commitlog").iterdir()):
                if int(path.name) > cut:
                    path.unlink()
                elif int(path.name) <= cut < int(path.name) + SMALL.segment_bytes:
                    path.write_bytes(path.read_bytes()[: cut - int(path.name)] + garbage)
            self.stored = [
                (record, place) for record, place in self.stored if place.log_offset + place.size_bytes <= cut
            ]
            self.deleted = {topic: min(count, len(self.stored)) for topic, count in self.deleted.items()}
        self._replace(directory)
        assert not self.store.was_clean_stop

    def _copy(self) -> Path:
        self.runs += 1
        return Path(shutil.copytree(self.root / str(self.runs - 1), self.root / str(self.runs)))

    def _replace(self, directory: Path) -> None:
        self.store.close()
        self.store = self._open(directory)
        shutil.rmtree(self.root / str(self.runs - 1))
        if self.store.recovery.rebuilt_queues:
            # A start that had to make queues again ends with a checkpoint: a tear below it is no crash's doing.
            self.checkpointed = self.store.written_log_offset

    def _queue(self, topic: str, queue_id: int) -> list[PendingRecord]:
        kept = [record for record, _ in self.stored[self.deleted[topic] :]]
        return [r for r in kept if (r.message.topic, r.queue_id) == (topic, queue_id) or topic in r.light_queues]

    @invariant()
    def every_light_queue_holds_what_was_sent_to_it_and_nothing_else(self) -> None:
        for name in LIGHT_QUEUES:
            expected = [record.message.body for record in self._queue(name, 0)]
            assert [body for body, _ in queue_content(self.store, name, 0)] == expected

    @invariant()
    def every_queue_holds_what_was_put_and_nothing_else(self) -> None:
        for topic in TOPICS:
            for queue_id in range(3):
                expected = [
                    (record.message.body, java_hash_code(record.message.properties.get("TAGS", "")))
                    for record in self._queue(topic, queue_id)
                ]
                assert self.store.max_offset(topic, queue_id) == len(expected)
                assert queue_content(self.store, topic, queue_id) == expected

    @invariant()
    def times_lead_to_offsets(self) -> None:
        for topic in TOPICS:
            kept = self.stored[self.deleted[topic] :]
            places = [p for r, p in kept if (r.message.topic, r.queue_id) == (topic, 0)]
            for place in places[-3:]:
                times = [p.store_timestamp_ms for p in places]
                assert self.store.offset_by_time(topic, 0, place.store_timestamp_ms) == times.index(
                    place.store_timestamp_ms
                )
            assert self.store.last_store_timestamp_ms(topic, 0) == (places[-1].store_timestamp_ms if places else 0)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.root)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=scaled(60), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
