"""The ingestion gateway as a process of its own before a server as one, all on loopback.

`file`: a log of lines of 100 bytes is read once, as ordinary messages and in the bulk lane, and with each line's JSON
looked into for a key; lines a second of processor time of the gateway alone, its start included. `syslog`: a sender,
a process of its own, sends RFC 5424 messages by UDP at a rate for some seconds; how many were stored, and how many the
kernel dropped. A gateway and its sender share the cores with the server.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess

__all__ = ["measure_ingest"]

_LINES = 1_000_000
_LINE_BYTES = 100
_RATE = 20_000
_SECONDS = 10
_SEED = 20_261_122

_SENDER = """
import socket, sys, time
port, rate, seconds = map(int, sys.argv[1:])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect(("127.0.0.1", port))
text = b"<134>1 2026-11-22T10:00:00.000Z host.example.com app 4711 ID47 - user %d did something, then something else"
begin, sent = time.monotonic(), 0
while sent < rate * seconds:
    due = min(rate * seconds, int((time.monotonic() - begin) * rate))
    while sent < due:
        sender.send(text % sent)
        sent += 1
    time.sleep(0.001)
print(time.monotonic() - begin)
"""


class _Gateway:
    """A gateway that is ready, and its processor time at its end."""

    def __init__(self, nameserver: str, *words: str) -> None:
        command = [sys.executable, "-m", "millstream", "ingest", *words, "--nameserver", nameserver, "-o", "json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.places = json.loads(self._process.stdout.readline())
        self._process.stdout.readline()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def ended(self) -> tuple[dict[str, dict[str, int]], float]:
        """The counts, and the processor seconds."""
        assert self._process.stdout is not None
        out = self._process.stdout.read()
        _, _, usage = os.wait4(self._process.pid, 0)
        return json.loads(out.splitlines()[-1]), usage.ru_utime + usage.ru_stime


def _write_log(path: Path) -> None:
    choose = random.Random(_SEED)
    with path.open("wb") as file:
        for number in range(_LINES):
            line = b'{"id":%d,"user":"u%d","price":%d,"note":"' % (
                number,
                choose.randrange(5000),
                choose.randrange(10**6),
            )
            file.write(line + choose.randbytes(40).hex().encode()[: _LINE_BYTES - len(line) - 3] + b'"}\n')


def _read_log(nameserver: str, log: Path, topic: str, *words: str) -> dict[str, object]:
    started_s = time.monotonic()
    gateway = _Gateway(nameserver, "file", topic, str(log), "--once", "--dir", str(log.parent / topic), *words)
    counts, cpu_s = gateway.ended()
    if counts["file"]["stored"] != _LINES:
        raise AssertionError(f"{counts} instead of {_LINES} lines")
    return {
        "lines_per_s_of_a_core": round(_LINES / cpu_s),
        "lines_per_s": round(_LINES / (time.monotonic() - started_s)),
        "cpu_us_per_line": round(cpu_s / _LINES * 1e6, 2),
    }


def _receive(nameserver: str, topic: str, *words: str) -> dict[str, object]:
    gateway = _Gateway(nameserver, "syslog", topic, "--udp", "0", "--host", "127.0.0.1", *words)
    port = gateway.places["syslog-udp"].rpartition(":")[2]
    sender = [sys.executable, "-c", _SENDER, port, str(_RATE), str(_SECONDS)]
    seconds = float(subprocess.run(sender, check=True, capture_output=True, text=True).stdout)
    gateway.stop()
    counts, cpu_s = gateway.ended()
    return {
        "sent_per_s": round(_RATE * _SECONDS / seconds),
        "sent": _RATE * _SECONDS,
        "stored": counts["syslog"]["stored"],
        "dropped_by_the_kernel": counts["syslog"]["kernel_drops"],
        "cpu_us_per_message": round(cpu_s / (_RATE * _SECONDS) * 1e6, 2),
    }


def measure_ingest() -> dict[str, object]:
    """Lines of files a second of one core, and what became of datagrams at a rate."""
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        nameserver = server.addresses.nameserver
        with BlockingClient(nameserver, timeout_s=30.0) as client:
            for name in ("file_records", "syslog_records"):
                client.create_topic(TopicConfig(name))
            for name in ("file_bulk", "file_bulk_key", "syslog_bulk"):
                client.create_topic(TopicConfig(name, attributes={"queue.type": "BatchCQ"}))
        log = Path(scratch) / "events.log"
        _write_log(log)
        results["file_bulk"] = _read_log(nameserver, log, "file_bulk", "--bulk")
        results["file_bulk_with_key"] = _read_log(nameserver, log, "file_bulk_key", "--bulk", "--key-field", "id")
        results["file_records"] = _read_log(nameserver, log, "file_records")
        results["syslog_bulk"] = _receive(nameserver, "syslog_bulk", "--bulk")
        results["syslog_records"] = _receive(nameserver, "syslog_records")
    return results
