"""Measures a start over very many MQTT sessions that nobody has, and retained messages, after kill -9 and a clean stop.

`python -m benchmarks.mqtt_restart [--sessions N] [--retained N] [--waiting]` prints what it found as JSON. Each session
has one subscription; with `--waiting` a message waits in each, so that every one of them has a light queue with files.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.mqtt_load import LoadClient, cpu_s, memory_bytes
from benchmarks.mqtt_packets import (
    connect_from,
    connect_packet,
    publish_packet,
    receive,
    source_of,
    subscribe_packet,
)
from millstream.server.child import ServerProcess

__all__ = ["measure_mqtt_restart"]

_OPTIONS: Final = ("--mqtt-port", "0", "--amqp-port", "off", "--http-port", "off")
_AT_ONCE: Final = 100
_DISCONNECT: Final = b"\xe0\0"
_SETTLE_S: Final = 3.0
_PATIENCE_S: Final = 300.0


def measure_mqtt_restart(
    sessions: int = 100_000, retained: int = 100_000, *, waiting: bool = False
) -> dict[str, float]:
    """Seconds from the start of the process until it answers, and until a session and a retained message of before
    are there; memory of the server with nothing, with all of that made, and after each start."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "data"
        began_s = time.monotonic()
        server = ServerProcess(directory, options=_OPTIONS)
        found["empty_start_s"] = time.monotonic() - began_s
        try:
            found["empty_mb"] = memory_bytes(server.pid) / 1e6
            found |= _fill(_address(server), server.pid, sessions, retained, waiting=waiting)
            for kind in ("kill", "stop", "kill_again"):
                began_s = time.monotonic()
                if kind.startswith("kill"):
                    server.kill()
                else:
                    server.stop(_PATIENCE_S)
                found[f"{kind}_s"] = time.monotonic() - began_s
                began_s = time.monotonic()
                server = ServerProcess(directory, options=_OPTIONS, ready_timeout_s=_PATIENCE_S)
                found[f"after_{kind}_ready_s"] = time.monotonic() - began_s
                _go_on(_address(server), sessions - 1, waiting=waiting)
                found[f"after_{kind}_session_s"] = time.monotonic() - began_s
                _find_retained(_address(server), retained - 1)
                found[f"after_{kind}_retained_s"] = time.monotonic() - began_s
                found[f"after_{kind}_cpu_s"] = cpu_s(server.pid)
                time.sleep(_SETTLE_S)
                found[f"after_{kind}_mb"] = memory_bytes(server.pid) / 1e6
        finally:
            server.stop()
    return {name: round(value, 2) for name, value in found.items()}


def _address(server: ServerProcess) -> tuple[str, int]:
    host, _, port = server.addresses.protocols["mqtt"].rpartition(":")
    return host, int(port)


def _fill(address: tuple[str, int], pid: int, sessions: int, retained: int, *, waiting: bool) -> dict[str, float]:
    before_s, began_s, before_bytes = cpu_s(pid), time.monotonic(), memory_bytes(pid)
    for start in range(0, sessions, _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, sessions))
        clients = []
        for number in numbers:
            client = connect_from(source_of(number), address)
            subscription = subscribe_packet(f"kept/{number}", 1)
            client.sendall(connect_packet(f"kept-{number}", clean=False) + subscription)
            clients.append(client)
        for client in clients:
            receive(client, 9)
            client.sendall(_DISCONNECT)
            client.close()
    time.sleep(_SETTLE_S)
    found = {
        "making_cpu_us_per_session": (cpu_s(pid) - before_s) / sessions * 1e6,
        "making_s": time.monotonic() - began_s,
        "memory_bytes_per_session": (memory_bytes(pid) - before_bytes) / sessions,
    }
    before_bytes = memory_bytes(pid)
    _publish_all(address, retained, "retained", retain=True)
    found["memory_bytes_per_retained"] = (memory_bytes(pid) - before_bytes) / retained
    if waiting:
        before_bytes = memory_bytes(pid)
        _publish_all(address, sessions, "kept", retain=False)
        found["memory_bytes_per_waiting"] = (memory_bytes(pid) - before_bytes) / sessions
    found["filled_mb"] = memory_bytes(pid) / 1e6
    return found


def _publish_all(address: tuple[str, int], count: int, prefix: str, *, retain: bool) -> None:
    client = LoadClient(address, f"sender-{prefix}")
    for start in range(0, count, _AT_ONCE):
        some = [
            publish_packet(f"{prefix}/{number}", 1, 1 + number % _AT_ONCE, retain=retain)
            for number in range(start, min(start + _AT_ONCE, count))
        ]
        client.socket.sendall(b"".join(some))
        client.expect(4 * len(some))
    client.socket.close()


def _go_on(address: tuple[str, int], number: int, *, waiting: bool) -> None:
    """Connect as one of the clients: its session is there, and what waited for it comes."""
    client = connect_from("", address)
    client.sendall(connect_packet(f"kept-{number}", clean=False))
    if receive(client, 4)[2:] != b"\1\0":
        raise SystemExit(f"session {number} is not there")
    if waiting and receive(client, 1)[0] & 0xF0 != 0x30:
        raise SystemExit(f"no message waited for session {number}")
    client.sendall(_DISCONNECT)
    client.close()


def _find_retained(address: tuple[str, int], number: int) -> None:
    client = LoadClient(address, "finder")
    client.subscribe(f"retained/{number}", 0)
    if client.expect(1)[0] & 0xF1 != 0x31:
        raise SystemExit(f"no message is retained for number {number}")
    client.socket.close()


def main() -> int:
    """0 when all was found again."""
    parser = argparse.ArgumentParser(description="Measure a start over many MQTT sessions.")
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--retained", type=int, default=100_000)
    parser.add_argument("--waiting", action="store_true", help="let a message wait in each session")
    said = parser.parse_args()
    print(json.dumps(measure_mqtt_restart(said.sessions, said.retained, waiting=said.waiting), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
