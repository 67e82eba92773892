from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from millstream.model.clock import SystemClock
from millstream.model.errors import StartRefused
from millstream.server import supervised
from millstream.server.supervised import SupervisedRole

pytestmark = pytest.mark.process


def role(directory: Path, *options: str) -> SupervisedRole:
    words = ["--dir", str(directory / "ns"), "--set", "port=0", *options]
    return SupervisedRole("nameserver", "ns", words, directory / "ns.log", SystemClock())


def is_running(directory: Path) -> bool:
    found = subprocess.run(["pgrep", "-f", f"millstream start nameserver .*{directory}"], capture_output=True)
    return bool(found.stdout)


async def test_a_role_that_is_not_ready_in_time_is_refused_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "READY_TIMEOUT_S", 0.05)
    with pytest.raises(StartRefused, match=r"ns was not ready within 0.05 s"):
        await role(tmp_path).start()
    assert not is_running(tmp_path)


async def test_a_role_that_refuses_to_start_is_told_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match=r"ns did not start: .*no setting prot\. Did you mean port\?") as refused:
        await role(tmp_path, "--set", "prot=1").start()
    assert refused.value.name == "CHILD_PROCESS_FAILED"


async def test_a_role_whose_log_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ns.log").mkdir()
    with pytest.raises(StartRefused, match="ns cannot be started"):
        await role(tmp_path).start()


async def test_a_role_keeps_the_port_that_its_first_start_found(tmp_path: Path) -> None:
    running = role(tmp_path)
    await running.start()
    first = dict(running.addresses)
    assert running.pid is not None
    assert running.restarts == 0
    await running.close()
    assert running.pid is None
    again = role(tmp_path, "--set", f"port={first['nameserver'].rpartition(':')[2]}")
    await again.start()
    assert again.addresses == first
    await again.close()
    assert not is_running(tmp_path)
