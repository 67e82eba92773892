"""Drivers that a killed server has left: the next one of the directory waits for them, and ends those that stay."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.job_server import driver_process
from millstream.job_server.driver_process import end_left_drivers


def held(path: Path, program: str) -> subprocess.Popen[bytes]:
    """A process that has the lock, as a driver gets it from its server."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    process = subprocess.Popen([sys.executable, "-c", program], pass_fds=(lock,), start_new_session=True)
    os.pwrite(lock, str(process.pid).encode(), 0)
    os.close(lock)
    return process


def test_the_lock_of_a_driver_that_has_ended_is_removed(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    lock.write_text("1")
    end_left_drivers([lock])
    assert not lock.exists()


@pytest.mark.process
def test_a_driver_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    process = held(tmp_path / "a.lock", "import time; time.sleep(1)")
    end_left_drivers([tmp_path / "a.lock"])
    assert process.wait() == 0


@pytest.mark.process
def test_a_driver_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_process, "STOP_S", 0.0)
    monkeypatch.setattr(driver_process, "_MARGIN_S", 0.0)
    process = held(tmp_path / "a.lock", "import time; time.sleep(1000)")
    end_left_drivers([tmp_path / "a.lock"])
    assert process.wait() == -9
    assert not (tmp_path / "a.lock").exists()
