"""The memory and processor time of a process tree, on this very process."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from millstream.telemetry.processes import ProcessTree, TreeRecorder

pytestmark = [
    pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="this system has no /proc"),
    pytest.mark.process,
]


def test_a_child_is_found_below_its_parent() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        samples = ProcessTree([os.getpid()]).sample()
        assert samples is not None
        assert {os.getpid(), child.pid} <= {sample.pid for sample in samples}
    finally:
        child.communicate(b"\n")


def test_the_peak_holds_what_was_freed_since() -> None:
    recorder = TreeRecorder([os.getpid()])
    recorder.take()
    before = recorder.peak_bytes
    block = bytearray(os.urandom(1)) * 64_000_000
    recorder.take()
    del block
    recorder.take()
    assert before is not None
    assert recorder.peak_bytes is not None
    assert recorder.peak_bytes - before > 48_000_000


def test_a_process_that_is_gone_is_passed_over() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert ProcessTree([gone.pid]).sample() == []


def test_a_process_that_has_ended_and_that_nobody_waited_for_is_passed_over() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert ProcessTree([ended.pid]).cpu_s() == {}
    finally:
        ended.wait()


def test_without_memory_the_processor_time_is_counted_and_the_peak_stays_unknown() -> None:
    recorder = TreeRecorder([os.getpid()], memory=False)
    recorder.take()
    before_s = recorder.cpu_s()
    until_s = time.process_time() + 0.1
    while time.process_time() < until_s:
        pass
    recorder.take()
    assert recorder.cpu_s() - before_s > 0.05
    assert recorder.peak_bytes is None
    assert not recorder.peak_bytes_by_kind
