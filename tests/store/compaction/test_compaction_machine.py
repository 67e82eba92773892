"""A compacted queue against a plain model: puts, tombstones, compactions, trims, readers and crashes in any order."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from compaction_samples import RETENTION_MS, CrashingFiles, LogQueue, Table, content, opened
from crash.file_twins import HastyFiles
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from example_counts import scaled
from millstream.store.compaction.compacted_queue import CompactedQueue
from millstream.store.compaction.compaction import Compaction

KEYS = st.sampled_from(["a", "b", "c", "d", "e"])


@pytest.fixture(autouse=True)
def _no_word_of_the_store_is_kept() -> Iterator[None]:
    """A kept record of the log holds its error, and that the mapped files of the compaction that failed."""
    logger = logging.getLogger("millstream")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


class Model:
    """What the generation in use must hold: for each key the offset of its last record, and since when it is marked."""

    def __init__(self) -> None:
        self.puts: list[tuple[str, bytes]] = []
        self.end = 0
        self.kept: dict[str, int] = {}
        self.marked: dict[str, int] = {}

    def compacted(self, end: int, now_ms: int) -> Model:
        """The model after a compaction."""
        after = Model()
        after.puts, after.end = self.puts, max(end, self.end)
        for key, number in self.kept.items():
            if key not in self.marked or now_ms - self.marked[key] < RETENTION_MS:
                after.kept[key] = number
        after.marked = {key: marked_ms for key, marked_ms in self.marked.items() if key in after.kept}
        for number in range(self.end, end):
            key, body = self.puts[number]
            after.kept[key] = number
            after.marked.pop(key, None)
            if not body:
                after.marked[key] = now_ms
        return after

    def content(self) -> dict[int, tuple[str, bytes]]:
        """What a reader gets of the whole queue."""
        numbers = [*sorted(self.kept.values()), *range(self.end, len(self.puts))]
        return {number: self.puts[number] for number in numbers}

    def last_values(self) -> dict[bytes, bytes]:
        return {key: body for key, body in {key.encode(): body for key, body in self.puts}.items() if body}


class CompactionMachine(RuleBasedStateMachine):
    """`model` is of the generation in use, `pending` what it will be when the compaction under way is over."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(prefix="millstream-test-", dir=memory if memory.is_dir() else None))
        self.source = LogQueue()
        self.model = Model()
        self.now_ms = 5_000
        self.compaction: Compaction | None = None
        self.pending = self.model
        self.tables: list[Table] = []
        self.runs = 0

    @initialize(max_keys=st.sampled_from([1, 2, 1000]), max_records=st.sampled_from([3, 1000]))
    def start(self, max_keys: int, max_records: int) -> None:
        self.max_keys, self.max_records = max_keys, max_records
        self.queue = self._open(self.root / "0")

    def _open(self, directory: Path, files: HastyFiles | None = None) -> CompactedQueue:
        return opened(directory, self.source, files=files, max_keys=self.max_keys, max_records=self.max_records)

    @rule(puts=st.lists(st.tuples(KEYS, st.sampled_from([b"", b"x", b"y" * 300])), min_size=1, max_size=8))
    def put(self, puts: list[tuple[str, bytes]]) -> None:
        for number, (key, body) in enumerate(puts, start=len(self.model.puts)):
            value = body and body + b"%d" % number
            self.model.puts.append((key, value))
            self.source.put(key, value)

    @rule(amount_ms=st.sampled_from([1, RETENTION_MS // 2, RETENTION_MS]))
    def pass_time(self, amount_ms: int) -> None:
        self.now_ms += amount_ms

    @precondition(lambda self: self.compaction is None)
    @rule(data=st.data())
    def begin_compaction(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(0, len(self.model.puts) + 2))
        self.compaction = self.queue.begin_compaction(self.source, end, self.now_ms)
        self.pending = self._after(end)

    def _after(self, end: int) -> Model:
        return self.model.compacted(min(end, self.model.end + self.max_records, len(self.model.puts)), self.now_ms)

    @precondition(lambda self: self.compaction is not None)
    @rule(records=st.sampled_from([1, 2, 5, 1000]))
    def step_compaction(self, records: int) -> None:
        assert self.compaction is not None
        if self.compaction.step(records):
            self.compaction = None
            self.model = self.pending

    @precondition(lambda self: self.compaction is not None)
    @rule()
    def abandon_compaction(self) -> None:
        assert self.compaction is not None
        self.compaction.abandon()
        self.compaction = None

    @precondition(lambda self: self.compaction is None)
    @rule(data=st.data(), operations=st.integers(0, 40))
    def crash_in_a_compaction(self, data: st.DataObject, operations: int) -> None:
        end = data.draw(st.integers(0, len(self.model.puts)))
        after = self._after(end)
        queue = self._open(self.queue.directory, CrashingFiles(10_000))
        assert isinstance(queue._files, CrashingFiles)
        queue._files.left = operations
        before = queue.header
        with contextlib.suppress(OSError):
            queue.compact(self.source, end, self.now_ms)
        queue.release()
        self._start_again()
        if self.queue.header != before:
            self.model = after

    @rule()
    def crash(self) -> None:
        self._start_again()

    def _start_again(self) -> None:
        self.runs += 1
        directory = self.root / str(self.runs)
        if self.queue.directory.exists():
            shutil.copytree(self.queue.directory, directory)
        self.compaction = None
        self.queue.release()
        self.queue = self._open(directory)

    @rule()
    def trim_the_log(self) -> None:
        self.source.first = max(self.source.first, self.queue.end_offset)

    @rule()
    def release(self) -> None:
        self.queue.release()

    @precondition(lambda self: len(self.tables) < 3)
    @rule()
    def open_table(self) -> None:
        self.tables.append(Table())

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), max_records=st.sampled_from([1, 2, 100]))
    def read_some(self, data: st.DataObject, max_records: int) -> None:
        data.draw(st.sampled_from(self.tables)).read(self.queue, self.source, max_records)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def read_all(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        table.read_all(self.queue, self.source, 2)
        assert table.state == self.model.last_values()

    @invariant()
    def the_queue_holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "queue"):
            return
        expected = self.model.content()
        assert self.queue.end_offset == self.model.end
        assert content(self.queue, self.source) == expected
        middle = len(self.model.puts) // 2
        assert content(self.queue, self.source, middle) == {n: put for n, put in expected.items() if n >= middle}

    @invariant()
    def a_new_table_holds_the_last_value_of_each_key(self) -> None:
        if hasattr(self, "queue"):
            table = Table()
            table.read_all(self.queue, self.source, 1000)
            assert table.state == self.model.last_values()

    def teardown(self) -> None:
        if self.compaction is not None:
            self.compaction.abandon()
        if hasattr(self, "queue"):
            self.queue.release()
        shutil.rmtree(self.root)


TestCompactionMachine = CompactionMachine.TestCase
TestCompactionMachine.settings = settings(
    max_examples=scaled(150), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
