"""The key index against a plain model, over any order of puts, extends, trims, crashes, damage and deletions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from key_index_samples import SMALL_SEGMENTS, IndexedStore, Keyed, keyed, keyed_batch

from example_counts import scaled
from millstream.model.clock import ManualClock
from millstream.store.write_batch import PendingRecord

WORDS = ("a", "b", "ab", "ключ", "plumless", "buckeroo")
TOPICS = ("orders", "%RETRY%orders")
KEYS = st.one_of(st.none(), st.lists(st.sampled_from((*WORDS, "", " ")), max_size=4).map(" ".join))
UNIQUE = st.one_of(st.none(), st.sampled_from(("u1", "u2", "a")))
SINGLE = st.builds(
    keyed,
    KEYS,
    UNIQUE,
    topic=st.sampled_from(TOPICS),
    body=st.one_of(st.sampled_from([b"", b" a ", b"\x02KEYS\x01a\x02"]), st.integers(200, 1200).map(bytes)),
    born_host=st.sampled_from(["10.0.0.9", "2001:db8::7"]),
)
QUESTIONS = [(topic, key) for topic in (*TOPICS, "batches") for key in (*WORDS, "u1", "u2", "whole", "none")]
PAIRS = st.lists(st.tuples(KEYS, UNIQUE), min_size=1, max_size=3)


class KeyIndexMachine(RuleBasedStateMachine):
    """`indexed.stored` is the model: what was put, what was not lost, trimmed or deleted since."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(prefix="millstream-test-", dir=memory if memory.is_dir() else None))
        self.clock = ManualClock(step_ms=400)
        self.runs = 0
        self.turn = 0

    @initialize()
    def start(self) -> None:
        self.indexed = IndexedStore(self.root / "0", clock=self.clock)

    @rule(records=st.lists(SINGLE, min_size=1, max_size=6))
    def put(self, records: list[PendingRecord]) -> None:
        self.indexed.put(*records)

    @rule(pairs=PAIRS)
    def put_batch(self, pairs: list[tuple[str | None, str | None]]) -> None:
        keys = {word for words, _ in pairs if words for word in words.split(" ") if word}
        self.indexed.put(keyed_batch(pairs, "whole"), keys=keys | {unique for _, unique in pairs if unique})

    @rule(data=st.data(), bytes_at_a_time=st.one_of(st.none(), st.integers(1, 1500)))
    def extend(self, data: st.DataObject, bytes_at_a_time: int | None) -> None:
        ends = [each.log_offset for each in self.indexed.stored] + [self.indexed.end]
        end = data.draw(st.sampled_from(ends[-8:]))
        is_covered = self.indexed.index.extend(end, max_log_bytes=bytes_at_a_time)
        if is_covered:
            assert self.indexed.index.covered_log_offset >= end
        assert is_covered or bytes_at_a_time is not None
        assert self.indexed.index.covered_log_offset <= self.indexed.end

    @rule()
    def open_again(self) -> None:
        covered = self.indexed.index.covered_log_offset
        self.indexed.reopen_index()
        assert self.indexed.index.covered_log_offset <= max(covered, self.indexed.store._log.start)

    @rule(is_told=st.booleans())
    def remove_the_oldest_segment(self, is_told: bool) -> None:
        self.indexed.remove_oldest_segment()
        if is_told:
            start = self.indexed.store._log.start
            self.indexed.index.trim(start)
            assert all(int(path.name[21:]) > start for path in self.indexed.run_files())

    @rule(topic=st.sampled_from(TOPICS))
    def delete(self, topic: str) -> None:
        self.indexed.store.delete_topic(topic)
        self.indexed.stored = [each for each in self.indexed.stored if each.topic != topic]

    @rule(data=st.data())
    def damage_a_run(self, data: st.DataObject) -> None:
        paths = self.indexed.run_files()
        if paths:
            path = data.draw(st.sampled_from(paths))
            content = bytearray(path.read_bytes())
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
            path.write_bytes(content)
            if data.draw(st.booleans()):
                assert self.indexed.damaged_runs() <= self.indexed.index.file_count

    @rule(data=st.data())
    def lose_a_run(self, data: st.DataObject) -> None:
        paths = self.indexed.run_files()
        if paths:
            data.draw(st.sampled_from(paths)).unlink()

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Start again from a copy, in which the log ends at any byte behind what was flushed."""
        indexed = self.indexed
        cut = data.draw(st.integers(indexed.store.flushed_log_offset, indexed.end))
        self.runs += 1
        directory = Path(shutil.copytree(indexed.directory, self.root / str(self.runs)))
        for path in sorted((directory / "commitlog").iterdir()):
            start = int(path.name)
            if start > cut:
                path.unlink()
            elif cut < start + SMALL_SEGMENTS.segment_bytes:
                path.write_bytes(path.read_bytes()[: cut - start])
        self._replace(directory)

    def _replace(self, directory: Path) -> None:
        old = self.indexed
        old.close()
        shutil.rmtree(old.directory)
        self.indexed = IndexedStore(directory, clock=self.clock)
        self.indexed.stored = [each for each in old.stored if each.log_offset < self.indexed.end]

    @rule(data=st.data(), key=st.sampled_from(WORDS), topic=st.sampled_from(TOPICS), count=st.integers(-1, 5))
    def ask(self, data: st.DataObject, key: str, topic: str, count: int) -> None:
        stored = self.indexed.stored or [Keyed("", 0, 0, frozenset())]
        near = st.sampled_from(stored).flatmap(lambda each: st.integers(each.stored_ms - 1, each.stored_ms + 1))
        times = (data.draw(near), data.draw(near))
        visible = data.draw(st.sampled_from([each.log_offset for each in stored] + [self.indexed.end]))
        expected = self.indexed.expected(key, topic, times, max(count, 0), visible)
        assert self.indexed.find(key, topic, times, count, visible) == expected

    @invariant()
    def some_keys_lead_to_their_records_and_no_others(self) -> None:
        if hasattr(self, "indexed"):
            self.turn += 1
            self._check(QUESTIONS[self.turn % len(QUESTIONS) :: 7])

    def _check(self, questions: Sequence[tuple[str, str]]) -> None:
        for topic, key in questions:
            found, expected = self.indexed.find(key, topic), self.indexed.expected(key, topic)
            assert found == expected, (topic, key)

    def teardown(self) -> None:
        if hasattr(self, "indexed"):
            self._check(QUESTIONS)
            self.indexed.close()
        shutil.rmtree(self.root)


TestKeyIndexMachine = KeyIndexMachine.TestCase
TestKeyIndexMachine.settings = settings(
    max_examples=scaled(100), stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
