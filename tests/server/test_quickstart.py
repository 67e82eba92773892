"""The all-in-one server as a process: readiness, bad starts, signals, and what survives kill -9."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.errors import StartRefused, Unreachable
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess

pytestmark = pytest.mark.process


_FREE_PORTS = ("--grpc-port", "--remoting-port", "--nameserver-port", "--metrics-port")


def start(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A start that is expected to fail."""
    free = [word for option in _FREE_PORTS if option not in options for word in (option, "0")]
    command = [sys.executable, "-m", "millstream", "quickstart", "--dir", str(directory), *free, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_it_prints_four_things_to_try_and_a_ready_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream", "quickstart", "--dir", str(tmp_path / "data")]
    command += [word for option in _FREE_PORTS for word in (option, "0")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("ready"):
                break
        process.terminate()
        rest = process.stdout.read()
    assert sum("millstream " in line and line.startswith("  ") for line in lines) == 4
    assert "stopped cleanly" in rest
    assert process.returncode == 0


@pytest.mark.parametrize("option", _FREE_PORTS)
def test_a_port_in_use_is_named(tmp_path: Path, option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = start(tmp_path / "data", option, port)
    assert refused.returncode == 1
    assert port in refused.stderr
    assert "MS-1001" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_metrics_port_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    for port in ("70000", "-1", "sometimes"):
        refused = start(tmp_path / "data", "--metrics-port", port)
        assert (refused.returncode, port in refused.stderr) == (2, True)
    assert not (tmp_path / "data").exists()


def test_a_data_directory_in_use_is_named_with_its_holder(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as holder:
        refused = start(tmp_path / "data")
        assert refused.returncode == 1
        assert str(tmp_path / "data") in refused.stderr
        assert str(holder.pid) in refused.stderr
        assert "MS-1002" in refused.stderr


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    refused = start(tmp_path / "file" / "data")
    assert refused.returncode == 1
    assert "MS-1003" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_host_of_another_machine_is_refused(tmp_path: Path) -> None:
    refused = start(tmp_path / "data", "--host", "192.0.2.1")
    assert refused.returncode == 1
    assert "192.0.2.1" in refused.stderr
    assert "MS-1005" in refused.stderr


def test_a_child_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StartRefused, match="MS-1003"):
        ServerProcess(tmp_path / "file" / "data")


@pytest.mark.parametrize("options", [(), ("--sync-flush",)])
def test_acknowledged_messages_topics_and_offsets_survive_kill_9(tmp_path: Path, options: tuple[str, ...]) -> None:
    bodies: list[bytes] = []
    for cycle in range(3):
        server = ServerProcess(tmp_path / "data", options=options)
        with BlockingClient(server.addresses.nameserver) as client:
            client.create_topic(TopicConfig("t", read_queues=2, write_queues=2))
            for number in range(50):
                body = os.urandom(8) + f"{cycle}-{number}".encode()
                client.send_many([Message("t", body)])
                bodies.append(body)
        server.kill()
    with ServerProcess(tmp_path / "data") as server, BlockingClient(server.addresses.nameserver) as client:
        read = [
            message.body
            for item in client.queue_ranges("t")
            for batch in client.read(item.queue, item.range.min_offset, item.range.max_offset)
            for message in batch.messages(verify=True)
        ]
    assert sorted(read) == sorted(bodies)


def test_after_a_stop_nothing_listens(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    server.stop()
    with pytest.raises(Unreachable), BlockingClient(server.addresses.nameserver, timeout_s=1) as client:
        client.topics()
