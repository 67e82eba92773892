"""Follows the log of a web server into a topic, while the log is written and rotated.

    pip install "millstream[bulk]"
    python examples/ingestion/web_log.py [LINES]

It starts a server and a gateway of its own (millstream ingest file), writes LINES lines (20,000), renames the log twice
meanwhile, and compares what is in the topic with what was written.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess

TOPIC = "web-log"
PATIENCE_S = 60.0


def write(log: Path, lines: int, client: BlockingClient) -> list[str]:
    """The lines. After each third, once some of it has arrived, the log gets another name and is written on."""
    written = []
    for part in range(3):
        with log.open("a") as file:
            for number in range(part, lines, 3):
                line = f'10.0.0.{number % 250} - - "GET /page/{number} HTTP/1.1" 200 {number * 7 % 5000}'
                file.write(line + "\n")
                written.append(line)
        # A log is rotated once a day, so that the gateway has long seen it.
        wait_for(client, len(written) - 10)
        if part < 2:
            log.rename(log.with_name(f"access.log.{2 - part}"))
    return written


def arrived(client: BlockingClient) -> int:
    """How many messages are in the topic."""
    return sum(held.range.max_offset - held.range.min_offset for held in client.queue_ranges(TOPIC))


def wait_for(client: BlockingClient, lines: int) -> None:
    """Return when so many have arrived, or when they do not come."""
    deadline_s = time.monotonic() + PATIENCE_S
    while arrived(client) < lines and time.monotonic() < deadline_s:
        time.sleep(0.1)


def read(client: BlockingClient) -> list[str]:
    """The lines in the topic."""
    found = []
    for held in client.queue_ranges(TOPIC):
        assert held.queue is not None
        for batch in client.read(held.queue, held.range.min_offset, held.range.max_offset):
            found += [message.body.decode() for message in batch.messages()]
    return found


def main() -> int:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        nameserver, log = server.addresses.nameserver, Path(scratch) / "access.log"
        with BlockingClient(nameserver) as client:
            client.create_topic(TopicConfig(TOPIC, attributes={"queue.type": "BatchCQ"}))
            command = [sys.executable, "-m", "millstream", "ingest", "file", TOPIC, str(log), "--bulk"]
            gateway = subprocess.Popen([*command, "--dir", f"{scratch}/positions", "--nameserver", nameserver])
            written = write(log, lines, client)
            wait_for(client, lines)
            gateway.send_signal(signal.SIGTERM)
            gateway.wait()
            found = read(client)
    is_same = sorted(found) == sorted(written)
    print(f"{len(written):,} lines written, {len(found):,} in the topic: {'the same' if is_same else 'NOT the same'}")
    return 0 if is_same else 1


if __name__ == "__main__":
    raise SystemExit(main())
