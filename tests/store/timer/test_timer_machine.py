"""The timer store against a plain dict, over any order of timers, deliveries, clock steps, checkpoints and crashes."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path

from crash.file_twins import FailingFiles
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from store_samples import crashed_copy
from timer_samples import NOW_MS, History, open_small

from example_counts import scaled
from millstream.store.timer.hour import HOUR_MS

DAY_MS = 24 * HOUR_MS
DELAYS_MS = st.one_of(
    st.integers(-3 * HOUR_MS, 7 * DAY_MS),
    st.integers(-1500, 5000),
    st.sampled_from([0, 1000, HOUR_MS, 2 * HOUR_MS, DAY_MS]),
)


class TimerMachine(RuleBasedStateMachine):
    """`history` is the model's log; `fired` are the timers that were due at some call of `due` of this run."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(prefix="millstream-test-", dir=memory if memory.is_dir() else None))
        self.files = FailingFiles()
        self.history = History()
        self.now_ms = NOW_MS
        self.fired: set[int] = set()

    @initialize()
    def start(self) -> None:
        self._open()

    def _open(self) -> None:
        self.timers = open_small(self.root / "timers", self.history, self.files)
        self.fired.clear()
        self.history.replay(self.timers)

    @rule(delays_ms=st.lists(DELAYS_MS, min_size=1, max_size=8), gap=st.sampled_from([0, 0, 0, 1, 3000]))
    def schedule(self, delays_ms: list[int], gap: int) -> None:
        for delay_ms in delays_ms:
            self.history.schedule(self.timers, self.now_ms + delay_ms, self.history.queue_end + gap)

    @rule(data=st.data())
    def schedule_again(self, data: st.DataObject) -> None:
        if self.history.queue_end:
            known = data.draw(st.integers(0, self.history.queue_end - 1))
            assert not self.timers.schedule(self.now_ms, known)

    @rule(max_count=st.integers(1, 20))
    def deliver(self, max_count: int) -> None:
        for queue_offset in self._due(max_count):
            self.history.done(self.timers, queue_offset)

    @rule(max_count=st.integers(0, 20))
    def hand_out(self, max_count: int) -> None:
        self._due(max_count)

    def _due(self, max_count: int) -> list[int]:
        pending = self.history.pending
        self.fired |= {offset for offset, due_ms in pending.items() if due_ms <= self.now_ms}
        expected = sorted(self.fired & pending.keys(), key=lambda offset: (pending[offset], offset))[:max_count]
        handed_out = self.timers.due(self.now_ms, max_count)
        assert handed_out == expected
        return handed_out

    @precondition(lambda self: self.history.pending)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.history.done(self.timers, data.draw(st.sampled_from(sorted(self.history.pending))))

    @rule(queue_offset=st.integers(0, 100))
    def do_twice_what_is_done(self, queue_offset: int) -> None:
        if queue_offset not in self.history.pending:
            assert not self.timers.finish(queue_offset)

    @rule(
        step_ms=st.one_of(
            st.integers(1, 3000), st.integers(1, 2 * DAY_MS), st.integers(-2 * HOUR_MS, -1), st.integers(-900, -1)
        )
    )
    def move_the_clock(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @rule()
    def checkpoint(self) -> None:
        self.history.checkpoint(self.timers)

    @rule(call=st.sampled_from(["pwrite", "sync"]))
    def fail_a_checkpoint(self, call: str) -> None:
        self.files.errors = {call: errno.ENOSPC}
        try:
            self.history.checkpoint(self.timers)
        except OSError:
            pass
        else:
            raise AssertionError("the twin did not fail")
        finally:
            self.files.errors = {}

    @rule()
    def crash(self) -> None:
        self._open()

    @rule(data=st.data())
    def lose_a_file(self, data: st.DataObject) -> None:
        paths = sorted((self.root / "timers").iterdir())
        if paths:
            data.draw(st.sampled_from(paths)).unlink()
            self._open()

    @rule(data=st.data())
    def lose_the_end_of_the_log_that_was_not_flushed(self, data: st.DataObject) -> None:
        del self.history.log[data.draw(st.integers(self.history.flushed, len(self.history.log))) :]
        self._open()

    @invariant()
    def every_timer_is_once_pending_or_done(self) -> None:
        pending = self.history.pending
        assert len(self.timers) == len(pending)
        assert self.timers.oldest_pending() == min(pending, default=None)
        assert self.timers.next_queue_offset == self.history.queue_end
        for queue_offset, due_ms in pending.items():
            assert self.timers.due_ms(queue_offset) == due_ms
        now_s = self.now_ms // 1000
        counts = self.timers.counts(self.now_ms, (0, 60, 3600, 86_400))
        assert counts[0] == sum(due_ms // 1000 < now_s for due_ms in pending.values())
        assert sum(counts[:3]) == sum(due_ms // 1000 < now_s + 3600 for due_ms in pending.values())
        assert sum(counts) == len(pending)

    def teardown(self) -> None:
        try:
            if hasattr(self, "timers"):
                survivor = open_small(crashed_copy(self.root / "timers", self.root / "copy"), self.history)
                self.history.replay(survivor)
                self.history.assert_held_by(survivor)
        finally:
            shutil.rmtree(self.root)


TestTimerMachine = TimerMachine.TestCase
TestTimerMachine.settings = settings(
    max_examples=scaled(200), stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
