"""A load generator for an MQTT port, in a process of its own: the same packets of 3.1.1 again and again.

`python -m benchmarks.mqtt_load HOST:PORT KIND CONNECTIONS IN_FLIGHT SECONDS SERVER_PID` prints what it found as JSON.
It makes and reads as little as it can, so that what is measured is the server: payloads have 100 bytes, and packets are
found by their lengths alone.

KIND: `publish1` and `publish2` publish with that QoS; `through` has a subscriber with a session that lasts for each
publisher; `fan` has one publisher of QoS 0 and CONNECTIONS subscribers; `idle` and `idle-lasting` connect and subscribe
once each, and do nothing then; `reconnect` does so with sessions that last, closes all, and connects again.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.mqtt_packets import (
    connect_from,
    connect_packet,
    publish_packet,
    receive,
    source_of,
    subscribe_packet,
)

__all__ = [
    "LoadClient",
    "cpu_s",
    "memory_bytes",
    "run_load",
]

_RECEIVE_BYTES: Final = 1 << 18
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_FAN_WINDOW: Final = 20
_AT_ONCE: Final = 200
_SETTLE_S: Final = 5.0


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_bytes(pid: int) -> int:
    """What a process holds in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class LoadClient:
    """One connection that was let in, with the bytes that are no whole packet yet."""

    def __init__(self, address: tuple[str, int], name: str, *, clean: bool = True) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held = b""
        self.socket.sendall(connect_packet(name, clean=clean))
        self.expect(4)

    def expect(self, size_bytes: int) -> bytes:
        """So many bytes."""
        return receive(self.socket, size_bytes)

    def subscribe(self, topic: str, qos: int) -> None:
        """Subscribe, and wait for the answer."""
        self.socket.sendall(subscribe_packet(topic, qos))
        self.expect(5)

    def packets(self, size_bytes: int) -> list[bytes]:
        """What has arrived, as packets of that size."""
        data = self.held + self.socket.recv(_RECEIVE_BYTES)
        if len(data) == len(self.held):
            raise SystemExit("the server closed a connection")
        whole = len(data) // size_bytes * size_bytes
        self.held = data[whole:]
        return [data[start : start + size_bytes] for start in range(0, whole, size_bytes)]


class _Load:
    """Clients with what each does when something arrives; `done` counts messages."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.done = 0

    def watch(self, client: LoadClient, act: Callable[[], None]) -> None:
        self.selector.register(client.socket, selectors.EVENT_READ, act)

    def run(self, seconds: float) -> float:
        """Let them act; the seconds that it took."""
        began_s = time.perf_counter()
        while (now_s := time.perf_counter()) - began_s < seconds:
            for key, _ in self.selector.select(0.2):
                key.data()
        return now_s - began_s


def _publisher(load: _Load, client: LoadClient, topic: str, qos: int, in_flight: int, *, counts: bool) -> None:
    frames = {number.to_bytes(2, "big"): publish_packet(topic, qos, number) for number in range(1, in_flight + 1)}

    def act() -> None:
        answers = client.packets(4)
        out = [
            b"\x62\x02" + one[2:] if one[0] == 0x50 else frames[one[2:]]
            for one in answers
        ]  # fmt: skip
        if counts:
            load.done += sum(one[0] != 0x50 for one in answers)
        client.socket.sendall(b"".join(out))

    load.watch(client, act)
    client.socket.sendall(b"".join(frames.values()))


def _subscriber(load: _Load, client: LoadClient, topic: str) -> None:
    size_bytes = len(publish_packet(topic, 1, 1))
    place = 4 + len(topic)

    def act() -> None:
        packets = client.packets(size_bytes)
        load.done += len(packets)
        client.socket.sendall(b"".join([b"\x40\x02" + one[place : place + 2] for one in packets]))

    load.watch(client, act)


def _fan(load: _Load, address: tuple[str, int], subscribers: int) -> None:
    frame = publish_packet("b/fan", 0)
    sender = LoadClient(address, "sender")
    received = [0]

    def act_of(client: LoadClient, *, leads: bool) -> Callable[[], None]:
        def act() -> None:
            count = len(client.packets(len(frame)))
            load.done += count
            if leads and count:
                received[0] += count
                sender.socket.sendall(frame * count)

        return act

    for number in range(subscribers):
        client = LoadClient(address, f"fan-{number}")
        client.subscribe("b/fan", 0)
        load.watch(client, act_of(client, leads=not number))
    sender.socket.sendall(frame * _FAN_WINDOW)


def _connect_all(address: tuple[str, int], count: int, *, clean: bool, subscribes: bool) -> list[socket.socket]:
    """So many clients, some at a time."""
    clients: list[socket.socket] = []
    for start in range(0, count, _AT_ONCE):
        some = []
        for number in range(start, min(start + _AT_ONCE, count)):
            source = source_of(number) if address[0].startswith("127.") else ""
            one = connect_from(source, address)
            name = f"idle-{os.getpid()}-{number}"
            one.sendall(connect_packet(name, clean=clean) + (subscribe_packet(f"b/{name}", 1) if subscribes else b""))
            some.append(one)
        for one in some:
            receive(one, 9 if subscribes else 4)
        clients += some
    return clients


def _idle(address: tuple[str, int], count: int, pid: int, *, clean: bool, again: bool = False) -> dict[str, float]:
    before_bytes = memory_bytes(pid)
    before_s, began_s = cpu_s(pid), time.perf_counter()
    clients = _connect_all(address, count, clean=clean, subscribes=True)
    if again:
        for one in clients:
            one.close()
        time.sleep(_SETTLE_S)
        before_s, began_s = cpu_s(pid), time.perf_counter()
        clients = _connect_all(address, count, clean=clean, subscribes=False)
    seconds, spent_s = time.perf_counter() - began_s, cpu_s(pid) - before_s
    time.sleep(1)
    found = {
        "connects_per_s": count / seconds,
        "server_cpu_us_per_connect": spent_s / count * 1e6,
        "memory_bytes_per_session": (memory_bytes(pid) - before_bytes) / count,
    }
    for one in clients:
        one.close()
    return found


def run_load(
    address: tuple[str, int], kind: str, connections: int, in_flight: int, seconds: float, pid: int
) -> dict[str, float]:
    """What one load found: messages a second and the processor time of server and load for each."""
    if kind == "reconnect":
        return _idle(address, connections, pid, clean=False, again=True)
    if kind.startswith("idle"):
        return _idle(address, connections, pid, clean=kind == "idle")
    load = _Load()
    if kind == "fan":
        _fan(load, address, connections)
    else:
        for number in range(connections):
            topic = f"b/{number:03}"
            if kind == "through":
                reader = LoadClient(address, f"reader-{os.getpid()}-{number}", clean=False)
                reader.subscribe(topic, 1)
                _subscriber(load, reader, topic)
            qos = 2 if kind == "publish2" else 1
            client = LoadClient(address, f"writer-{os.getpid()}-{number}", clean=kind != "publish2")
            _publisher(load, client, topic, qos, in_flight, counts=kind != "through")
    load.run(seconds / 4)
    load.done = 0
    before_s, own_s = cpu_s(pid), time.process_time()
    took_s = load.run(seconds)
    return {
        "messages_per_s": load.done / took_s,
        "server_cpu_us_per_message": (cpu_s(pid) - before_s) / max(load.done, 1) * 1e6,
        "load_cpu_us_per_message": (time.process_time() - own_s) / max(load.done, 1) * 1e6,
    }


def main() -> int:
    """0 when the load is over."""
    place, kind, connections, in_flight, seconds, pid = sys.argv[1:]
    host, _, port = place.rpartition(":")
    found = run_load((host, int(port)), kind, int(connections), int(in_flight), float(seconds), int(pid))
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
