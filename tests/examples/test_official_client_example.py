"""The example of the tutorial that uses the official client."""

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "messaging" / "official_client.py"


@pytest.mark.official
def test_it_receives_what_it_sent(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with BlockingClient(server.addresses.nameserver) as client:
            client.create_topic(TopicConfig("hello"))
        command = [sys.executable, str(EXAMPLE), server.addresses.grpc, "hello"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("received") == 5
