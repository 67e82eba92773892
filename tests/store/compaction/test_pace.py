"""A compaction beside clients pauses, and hurries where a pause would cost more than it brings."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from compaction_samples import LogQueue, content, opened

from millstream.store.compaction.compacted_queue import MIN_DUE_RECORDS
from millstream.store.compaction.pace import CLIENTS_SHARE, MAX_PAUSES_S, STEP_RECORDS, CompactionPace

NOW = 5_000


class Worker:
    """The processor time of a thread, which tells of each pause; a look at the time costs nothing."""

    def __init__(self) -> None:
        self.cpu_s = 100.0
        self.pauses_s: list[float] = []
        self.pace = CompactionPace(cpu_s=lambda: self.cpu_s, wait=self._wait)
        self.pace.begin()
        self.pace.rest()

    def work(self, seconds: float) -> None:
        self.cpu_s += seconds
        self.pace.rest()

    def _wait(self, hurries: threading.Event, seconds: float) -> bool:
        self.pauses_s.append(seconds)
        return hurries.is_set()


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_clients_have_their_share_of_the_time(worker: Worker) -> None:
    for _ in range(50):
        worker.work(0.001)
    assert sum(worker.pauses_s) / (0.05 + sum(worker.pauses_s)) == pytest.approx(CLIENTS_SHARE)


def test_little_work_is_added_up_before_a_pause(worker: Worker) -> None:
    for _ in range(8):
        worker.work(0.0001)
    assert len(worker.pauses_s) == 1


def test_the_pauses_of_a_round_are_bounded_and_those_of_the_next_one_begin_anew(worker: Worker) -> None:
    for _ in range(100):
        worker.work(1.0)
    assert sum(worker.pauses_s) == pytest.approx(MAX_PAUSES_S)
    worker.pauses_s.clear()
    worker.pace.begin()
    worker.work(1.0)
    worker.work(1.0)
    assert sum(worker.pauses_s) == pytest.approx(9.0)


def test_who_is_told_to_hurry_pauses_no_more_in_this_round(worker: Worker) -> None:
    worker.pace.hurry()
    worker.work(1.0)
    assert worker.pauses_s == []
    worker.pace.begin()
    worker.pace.rest()
    worker.work(1.0)
    assert len(worker.pauses_s) == 1


def test_a_pause_under_way_ends_when_it_is_told_to_hurry() -> None:
    times = iter([0.0, 1e6, 1e6])
    pace = CompactionPace(cpu_s=lambda: next(times))
    pace.begin()
    pace.rest()
    thread = threading.Thread(target=pace.rest)
    thread.start()
    pace.hurry()
    thread.join(MAX_PAUSES_S / 2)
    assert not thread.is_alive()


class SteppedPace(CompactionPace):
    """Counts the looks at it, and does something at each."""

    def __init__(self, source: LogQueue, arriving: int) -> None:
        super().__init__()
        self.looks = 0
        self._source = source
        self._arriving = arriving

    def rest(self) -> None:
        self.looks += 1
        for _ in range(self._arriving):
            self._source.put("new", b"%d" % self.looks)


def filled() -> LogQueue:
    return LogQueue(*[(f"k{number % 50}", b"%d" % number) for number in range(MIN_DUE_RECORDS)])


def test_it_pauses_after_small_steps(scratch: Path) -> None:
    source = filled()
    queue = opened(scratch, source)
    pace = SteppedPace(source, arriving=0)
    queue.compact(source, MIN_DUE_RECORDS, NOW, pace)
    assert pace.looks >= MIN_DUE_RECORDS // STEP_RECORDS
    assert len(content(queue, source)) == 50


def test_it_pauses_no_more_once_the_next_compaction_is_due(scratch: Path) -> None:
    source = filled()
    queue = opened(scratch, source)
    pace = SteppedPace(source, arriving=MIN_DUE_RECORDS // 4)
    queue.compact(source, MIN_DUE_RECORDS, NOW, pace)
    assert pace.looks == 4
    assert queue.end_offset == MIN_DUE_RECORDS
