"""The commands of docs/replicas.md: a cluster with replicas, whose master is killed while it is used."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Ran, run

from millstream.server.child import RoleProcess
from millstream.telemetry.processes import owner_of
from patience import eventually_blocking

pytestmark = [pytest.mark.process, pytest.mark.kill]

_OPTIONS = (
    "--brokers", "1", "--replicas", "3", "--nameserver-port", "0", "--controller-port", "0", "--broker-port", "0",
    "--grpc-port", "0",
)  # fmt: skip


@pytest.fixture
def millstream(tmp_path: Path) -> Iterator[Callable[..., Ran]]:
    """Runs a command against the cluster."""
    with RoleProcess("cluster", tmp_path / "c", options=_OPTIONS, log=tmp_path / "log") as cluster:

        def against_cluster(*arguments: str, stdin: str = "") -> Ran:
            return run(*arguments, "--nameserver", cluster.addresses["nameserver"], stdin=stdin)

        yield against_cluster


def topology(millstream: Callable[..., Ran]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(millstream("cluster", "topology", "-o", "json").out)
    return found


def master(millstream: Callable[..., Ran]) -> dict[str, Any]:
    [row] = [row for row in topology(millstream) if row["role"] == "master"]
    return row


def test_what_was_acknowledged_is_consumed_after_the_masters_process_is_killed(millstream: Callable[..., Ran]) -> None:
    eventually_blocking(lambda: master(millstream)["set"] == "3 of 3")
    assert millstream("topic", "create", "orders").code == 0
    bodies = [f"order {number}" for number in range(20)]
    assert millstream("produce", "orders", "-", stdin="\n".join(bodies[:10])).code == 0
    before = master(millstream)
    host, _, port = before["address"].rpartition(":")
    process = owner_of(host, int(port))
    assert process is not None
    os.kill(process, signal.SIGKILL)
    eventually_blocking(lambda: master(millstream)["address"] != before["address"])
    assert millstream("produce", "orders", "-", stdin="\n".join(bodies[10:])).code == 0
    got = millstream("consume", "orders", "--from", "earliest", "--until-end", "-o", "json")
    assert sorted(json.loads(line)["body"] for line in got.out.splitlines()) == sorted(bodies)
    assert master(millstream)["epoch"] == before["epoch"] + 1
    # The killed process is started again, and is a replica that has everything.
    eventually_blocking(lambda: master(millstream)["set"] == "3 of 3")
    assert millstream("status").code == 0
