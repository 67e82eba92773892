"""Measures very many MQTT sessions at several proxies of one broker, and what becomes of them when a proxy is killed.

`python -m benchmarks.mqtt_sessions [--sessions N] [--proxies N] [--loads N] [--messages N] [--clean]` prints what it
found as JSON. A process that may have 20,000 descriptors holds 15,904 connections, so 100,000 clients need seven
proxies, and eight if one of them is to go.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.mqtt_load import LoadClient, cpu_s
from benchmarks.mqtt_packets import publish_packet
from benchmarks.mqtt_session_load import SessionLoad, payload_of, topic_of
from millstream.server.child import RoleProcess

__all__ = ["HeldSessions", "SessionPlace", "measure_mqtt_sessions", "round_figures"]

_PORTS: Final = ("--grpc-port", "0", "--remoting-port", "0", "--mqtt-port")
_SETTLE_S: Final = 10.0
_IDLE_S: Final = 20.0
_WINDOW: Final = 100
_PAUSE_S: Final = 0.005
"""Between two messages while clients come back: 200 a second."""

_LOOK_S: Final = 0.5
_PATIENCE_S: Final = 300.0
_SEED: Final = 26


def measure_mqtt_sessions(
    sessions: int = 100_000, proxies: int = 8, loads: int = 6, messages: int = 1_000, *, clean: bool = False
) -> dict[str, object]:
    """Memory of all processes above their start and connects a second of clients with one subscription each; ms until
    a message is with each of some; with sessions that last, what becomes of a killed proxy's clients, and of
    messages meanwhile."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        place = SessionPlace(Path(scratch), running, proxies)
        held = HeldSessions(running, sessions, loads, clean=clean)
        chosen = random.Random(_SEED)
        place.note_start()
        found: dict[str, object] = {"sessions": sessions, "proxies": proxies, "kind": "clean" if clean else "lasting"}
        began_s, before_s = time.monotonic(), place.cpu_s()
        held.connect(place.addresses)
        took_s = time.monotonic() - began_s
        found["connect_s"] = took_s
        found["connects_per_s"] = sessions / took_s
        found["cpu_us_per_connect"] = (place.cpu_s() - before_s) / sessions * 1e6
        time.sleep(_SETTLE_S)
        found["idle"] = place.memory(sessions)
        before_s = place.cpu_s()
        time.sleep(_IDLE_S)
        found["idle_cores"] = (place.cpu_s() - before_s) / _IDLE_S
        some = chosen.sample(range(sessions), min(messages, sessions))
        found["messages"] = _send_to(place.addresses[-1], some, held)
        if not clean and proxies > 1:
            found["killed_proxy"] = _kill_one(place, held, chosen, sessions, messages)
            found["after_the_kill"] = place.memory(sessions)
        found["load_average_1_min"] = os.getloadavg()[0]
    return round_figures(found)


class SessionPlace:
    """A nameserver, a broker and proxies."""

    def __init__(self, folder: Path, running: ExitStack, proxies: int) -> None:
        def start(role: str, name: str, *options: str) -> RoleProcess:
            return running.enter_context(RoleProcess(role, folder / name, options=options, log=folder / f"{name}.log"))

        nameserver = start("nameserver", "nameserver", "--port", "0")
        known = ("--nameservers", nameserver.addresses["nameserver"])
        broker = start("broker", "broker", "--port", "0", *known)
        self._start_proxy = lambda number, port: start("proxy", f"proxy-{number}", *_PORTS, port, *known)
        self._proxies = [self._start_proxy(number, "0") for number in range(proxies)]
        self.addresses = [one.addresses["mqtt"] for one in self._proxies]
        self._pids = {"nameserver": nameserver.pid, "broker": broker.pid}
        self._pids |= {f"proxy-{number}": one.pid for number, one in enumerate(self._proxies)}
        self._start_bytes: dict[str, dict[str, int]] = {}

    def note_start(self) -> None:
        """What is there now is no session."""
        # A first client has each proxy open what it opens once.
        for address in self.addresses:
            _publisher(address).socket.close()
        self._start_bytes = {name: _memory(pid) for name, pid in self._pids.items()}

    def memory(self, sessions: int) -> dict[str, float]:
        """Memory of all above their start, in MB and for each session. `own` leaves out the pages of mapped files."""
        above: dict[str, dict[str, int]] = {
            name: {kind: size - self._start_bytes[name][kind] for kind, size in _memory(pid).items()}
            for name, pid in self._pids.items()
        }
        total = sum(one["VmRSS"] for one in above.values())
        return {
            "all_mb": total / 1e6,
            "bytes_per_session": total / sessions,
            "own_bytes_per_session": sum(one["RssAnon"] for one in above.values()) / sessions,
            "broker_mb": above["broker"]["VmRSS"] / 1e6,
            "start_mb": sum(self._start_bytes[name]["VmRSS"] for name in self._pids) / 1e6,
        }

    def cpu_s(self) -> float:
        """Processor seconds of all of them so far."""
        return sum(cpu_s(pid) for pid in self._pids.values())

    def cpu_by_role_s(self) -> dict[str, float]:
        """The same, of the broker, of all proxies and of the nameserver."""
        found = dict.fromkeys(("broker", "proxies", "nameserver"), 0.0)
        for name, pid in self._pids.items():
            found[name if name in found else "proxies"] += cpu_s(pid)
        return found

    def restart_proxies(self) -> float:
        """End all as kill -9 does and start them again where they were; when they all listened."""
        for one in self._proxies:
            # All at once: a client must not come back to one that goes next.
            os.kill(one.pid, signal.SIGKILL)
        for one in self._proxies:
            one.kill()
        ports = [address.rpartition(":")[2] for address in self.addresses]
        with ThreadPoolExecutor(len(ports)) as threads:
            self._proxies = list(threads.map(self._start_proxy, range(len(ports)), ports))
        self._pids |= {f"proxy-{number}": one.pid for number, one in enumerate(self._proxies)}
        return time.monotonic()

    def kill_first_proxy(self) -> None:
        """End it as kill -9 does."""
        self._proxies[0].kill()
        del self._pids["proxy-0"]


class HeldSessions:
    """The clients, in some processes."""

    def __init__(self, running: ExitStack, sessions: int, loads: int, *, clean: bool) -> None:
        edges = [sessions * number // loads for number in range(loads + 1)]
        self._loads = [
            running.enter_context(SessionLoad(first, after - first, clean=clean)) for first, after in pairwise(edges)
        ]
        self.counts: dict[str, int] = {}
        self.away_s: list[float] = []
        self.last_back_s = 0.0
        self.arrived_ms: dict[int, float] = {}
        """The messages that came, and the time from their sender."""
        self.doubles = 0

    def connect(self, places: Sequence[str]) -> None:
        """Have all of them connect and subscribe."""
        self._ask_all({"do": "connect", "places": list(places)})

    def cut(self, *, moves: bool, at_once: int) -> None:
        """Cut all their connections; they come back, so many of a process at a time, to other proxies if they move."""
        self._ask_all({"do": "cut", "moves": moves, "at_once": at_once})

    def cpu_s(self) -> float:
        """Processor seconds of the processes that hold them so far."""
        return sum(cpu_s(one.pid) for one in self._loads)

    def wait_for(self, holds: Callable[[], bool]) -> float:
        """Look until something holds, or patience is over; when that was."""
        give_up_s = time.monotonic() + _PATIENCE_S
        while True:
            looked_s = time.monotonic()
            self.look()
            if holds() or looked_s > give_up_s:
                return looked_s
            time.sleep(_LOOK_S)

    def look(self) -> None:
        """Take what they report."""
        reports = self._ask_all({"do": "report"})
        self.counts = {name: sum(one["counts"][name] for one in reports) for name in reports[0]["counts"]}
        self.last_back_s = max(one["last_back_s"] for one in reports)
        for one in reports:
            self.away_s += one["away_s"]
            for message, took_ms in one["messages"]:
                self.doubles += message in self.arrived_ms
                self.arrived_ms.setdefault(message, took_ms)

    def _ask_all(self, order: dict[str, Any]) -> list[dict[str, Any]]:
        for one in self._loads:
            one.ask(order)
        return [one.answer() for one in self._loads]


def _kill_one(
    place: SessionPlace, held: HeldSessions, chosen: random.Random, sessions: int, messages: int
) -> dict[str, float | int]:
    """Kill the first proxy; meanwhile half of the messages go to its clients, the other half to those of others."""
    proxies = len(place.addresses)
    known = len(held.arrived_ms)
    theirs = [number for number in range(sessions) if not number % proxies]
    some = chosen.choices(theirs, k=messages // 2) + chosen.choices(range(sessions), k=messages - messages // 2)
    chosen.shuffle(some)
    sender = _publisher(place.addresses[-1])
    killed_s = time.monotonic()
    place.kill_first_proxy()
    for message, number in enumerate(some, known):
        sender.socket.sendall(publish_packet(topic_of(number), 1, 1, payload=payload_of(message)))
        # What is acknowledged may not be lost.
        sender.expect(4)
        time.sleep(_PAUSE_S)
    sender.socket.close()
    sent_s = time.monotonic()
    held.wait_for(lambda: held.counts["lost"] >= len(theirs) <= held.counts["back"])
    arrived_s = held.wait_for(lambda: len(held.arrived_ms) >= known + len(some))
    return {
        "clients": len(theirs),
        **{name: held.counts[name] for name in ("lost", "back", "back_with_session", "refused")},
        "away_p50_s": statistics.median(held.away_s) if held.away_s else 0.0,
        "away_longest_s": max(held.away_s, default=0.0),
        "all_back_s": held.last_back_s - killed_s,
        "messages_sent": len(some),
        "sending_s": sent_s - killed_s,
        "messages_lost": known + len(some) - len(held.arrived_ms),
        "messages_twice": held.doubles,
        "all_arrived_s": arrived_s - killed_s,
        "longest_ms": max((took for message, took in held.arrived_ms.items() if message >= known), default=0.0),
    }


def _send_to(address: str, numbers: Sequence[int], held: HeldSessions) -> dict[str, float]:
    """A message to each of these clients, some at a time; what arrived."""
    sender = _publisher(address)
    for start in range(0, len(numbers), _WINDOW):
        some = [
            publish_packet(topic_of(number), 1, 1 + place, payload=payload_of(start + place))
            for place, number in enumerate(numbers[start : start + _WINDOW])
        ]
        sender.socket.sendall(b"".join(some))
        sender.expect(4 * len(some))
    sender.socket.close()
    held.wait_for(lambda: len(held.arrived_ms) >= len(numbers))
    times_ms = sorted(held.arrived_ms.values())
    return {
        "sent": len(numbers),
        "arrived": len(times_ms),
        "p50_ms": times_ms[len(times_ms) // 2],
        "p99_ms": times_ms[len(times_ms) * 99 // 100],
    }


def _publisher(address: str) -> LoadClient:
    host, _, port = address.rpartition(":")
    return LoadClient((host, int(port)), f"sender-{time.monotonic_ns()}")


def _memory(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(":") for line in lines)
        if name in ("VmRSS", "RssAnon")
    }


def round_figures(found: dict[str, Any]) -> dict[str, object]:
    """The same with two digits behind the point."""
    return {
        name: round_figures(value)
        if isinstance(value, dict)
        else round(value, 2)
        if isinstance(value, float)
        else value
        for name, value in found.items()
    }


def main() -> int:
    """0 when the figures are there."""
    parser = argparse.ArgumentParser(description="Measure many MQTT sessions at several proxies.")
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--proxies", type=int, default=8)
    parser.add_argument("--loads", type=int, default=6)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--clean", action="store_true", help="sessions that end with their connections")
    said = parser.parse_args()
    found = measure_mqtt_sessions(said.sessions, said.proxies, said.loads, said.messages, clean=said.clean)
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
