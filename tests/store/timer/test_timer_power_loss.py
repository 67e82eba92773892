"""When the power fails at any point, each timer of what is left of the log is exactly once pending or done."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from crash.disk_model import random_choice
from crash.traced_files import TracedFiles, crash_state, lay_out
from timer_samples import NOW_MS, History, open_small

from millstream.store.timer.hour import HOUR_MS


class _PowerCut(BaseException):
    pass


class _CuttingFiles(TracedFiles):
    """Cuts the power right before, or amid, the write or sync that `calls_left` counts down to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.calls_left: int | None = None

    def _count(self) -> None:
        if self.calls_left is not None:
            if not self.calls_left:
                raise _PowerCut
            self.calls_left -= 1

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> None:
        self._count()
        super().pwrite(descriptor, data, position)

    def fdatasync(self, descriptor: int) -> None:
        self._count()
        super().fdatasync(descriptor)

    def sync_directory(self, path: Path) -> None:
        self._count()
        super().sync_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)


@pytest.mark.long
def test_no_timer_is_lost_or_delivered_twice(scratch: Path) -> None:
    cut_amid_a_checkpoint = rebuilt = covered = 0
    for seed in range(250):
        choose, history = random.Random(seed), History()
        directory = scratch / str(seed)
        files = _CuttingFiles(directory)
        timers = open_small(directory, history, files)
        now_ms = NOW_MS
        for turn in range(choose.randrange(1, 6)):
            for _ in range(choose.randrange(40)):
                history.schedule(timers, now_ms + choose.randrange(3 * HOUR_MS))
            now_ms += choose.randrange(HOUR_MS)
            for queue_offset in timers.due(now_ms, choose.randrange(30)):
                history.done(timers, queue_offset)
            if turn and choose.random() < 0.3:
                files.calls_left = choose.randrange(12)
            try:
                history.checkpoint(timers)
            except _PowerCut:
                cut_amid_a_checkpoint += 1
                break
        lay_out(crash_state(files, random_choice(choose, choose.random())), scratch / "after")
        # What the log itself had not flushed may be gone as well.
        del history.log[choose.randint(history.flushed, len(history.log)) :]
        survivor = open_small(scratch / "after", history)
        rebuilt += survivor.needs_rebuild
        covered += survivor.covered_queue_offset > 0
        history.replay(survivor)
        history.assert_held_by(survivor)
        history.schedule(survivor, now_ms)
        history.checkpoint(survivor)
        history.assert_held_by(open_small(scratch / "after", history))
    assert cut_amid_a_checkpoint > 30, "no checkpoint was cut, so little was tested"
    assert covered > 100
    assert not rebuilt, "files that a checkpoint names were synced before it"
