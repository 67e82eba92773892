"""The traces of the official client's messages, read back from the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from official import drain, message, producer, simple_consumer

from millstream.cli.main import main
from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess

pytestmark = pytest.mark.official


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", options=("--trace",)) as running:
        with BlockingClient(running.addresses.nameserver) as client:
            client.create_topic(TopicConfig("orders", read_queues=1, write_queues=1))
        yield running


def trace(
    server: ServerProcess, message_id: str, capsys: pytest.CaptureFixture[str], steps: int, *, settled: bool = False
) -> Any:
    """The steps, once there are as many (and the last has an outcome); traces come a moment after what they tell."""
    for _ in range(100):
        code = main(["message", "trace", message_id, "--nameserver", server.addresses.nameserver, "-o", "json"])
        told = capsys.readouterr()
        found = json.loads(told.out) if code == 0 else []
        if len(found) >= steps and (found[-1]["outcome"] or not settled):
            return found
        time.sleep(0.05)
    raise AssertionError((code, told))


def test_a_message_s_way_from_its_producer_to_its_acknowledgement_is_told(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    port = int(server.addresses.grpc.rpartition(":")[2])
    with producer(port, "orders") as sender:
        receipt = sender.send(message("orders", b"hello"))
    (sent,) = trace(server, receipt.message_id, capsys, 1)
    assert (sent["step"], sent["topic"], sent["outcome"]) == ("sent", "orders", "stored")
    assert sent["detail"] == f"5 bytes at {server.addresses.broker}"
    with simple_consumer(port, "takers", "orders") as consumer:
        (taken,) = drain(consumer, 1, ack=False)
        _, delivered = trace(server, receipt.message_id, capsys, 2)
        assert (delivered["step"], delivered["outcome"], delivered["took_ms"]) == ("delivered", None, None)
        main(["message", "trace", receipt.message_id, "--nameserver", server.addresses.nameserver, "-o", "plain"])
        assert "unknown" in capsys.readouterr().out
        consumer.ack(taken)
    _, delivered = trace(server, receipt.message_id, capsys, 2, settled=True)
    told = {name: delivered[name] for name in ("step", "group", "attempt", "outcome")}
    assert told == {"step": "delivered", "group": "takers", "attempt": 1, "outcome": "consumed"}


def test_a_message_of_which_nothing_is_known_is_named_with_what_to_do(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["message", "trace", "NOBODY", "--nameserver", server.addresses.nameserver]) == 1
    said = capsys.readouterr().err
    assert "NOBODY" in said
    assert "--trace" in said
    assert "MS-8001" in said
