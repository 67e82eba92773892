"""Measures how soon very many MQTT sessions are back whose connections were all cut at once.

`python -m benchmarks.mqtt_reconnects [--sessions N] [--proxies N] [--loads N] [--at-once N]` prints what it found as
JSON: the clients come back to the proxies where they were, then once more, then each to another proxy, and then after
all proxies were killed and started again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.mqtt_sessions import HeldSessions, SessionPlace, round_figures

__all__ = ["measure_mqtt_reconnects"]

_SETTLE_S: Final = 15.0
"""What is left of connections that were cut is stored by then."""

_ROUNDS: Final = {"same_proxy": False, "same_proxy_again": False, "other_proxy": True}
"""Name of a round -> whether clients move."""


def measure_mqtt_reconnects(
    sessions: int = 50_000, proxies: int = 4, loads: int = 4, at_once: int = 2_500
) -> dict[str, object]:
    """Of each round: seconds from the cut until the last CONNACK, how many found their sessions, processor us a client
    until then in all server processes and in the load, and of the servers until all is settled."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        place = SessionPlace(Path(scratch), running, proxies)
        held = HeldSessions(running, sessions, loads, clean=False)
        place.note_start()
        held.connect(place.addresses)
        time.sleep(_SETTLE_S)
        found: dict[str, object] = {"sessions": sessions, "proxies": proxies, "at_once": at_once * loads}
        for name, moves in _ROUNDS.items():
            found[name] = _cut_all(place, held, sessions, moves=moves, at_once=at_once)
        found["restart"] = _restart(place, held, sessions)
        found["load_average_1_min"] = os.getloadavg()[0]
    return round_figures(found)


def _cut_all(place: SessionPlace, held: HeldSessions, sessions: int, *, moves: bool, at_once: int) -> dict[str, float]:
    held.look()
    before, roles_before, load_before_s = dict(held.counts), place.cpu_by_role_s(), held.cpu_s()
    held.away_s.clear()
    cut_s = time.monotonic()
    held.cut(moves=moves, at_once=at_once)
    held.wait_for(lambda: held.counts["back"] - before["back"] >= sessions)
    load_cpu_s, roles = held.cpu_s() - load_before_s, place.cpu_by_role_s()
    took = {name: spent_s - roles_before[name] for name, spent_s in roles.items()}
    time.sleep(_SETTLE_S)
    settled_cpu_s = place.cpu_s() - sum(roles_before.values())
    held.look()
    away_s = sorted(held.away_s)
    return {
        **{name: held.counts[name] - before[name] for name in ("lost", "back", "back_with_session", "refused")},
        "open": held.counts["open"],
        "all_back_s": held.last_back_s - cut_s,
        "away_p50_s": away_s[len(away_s) // 2] if away_s else 0.0,
        "server_cpu_us": sum(took.values()) / sessions * 1e6,
        "broker_cpu_us": took["broker"] / sessions * 1e6,
        "proxies_cpu_us": took["proxies"] / sessions * 1e6,
        "server_cpu_us_settled": settled_cpu_s / sessions * 1e6,
        "load_cpu_us": load_cpu_s / sessions * 1e6,
    }


def _restart(place: SessionPlace, held: HeldSessions, sessions: int) -> dict[str, float]:
    """Kill all proxies and start them again; a client whose connect fails tries another proxy 0.1 s later."""
    held.look()
    before = dict(held.counts)
    held.away_s.clear()
    killed_s = time.monotonic()
    listening_s = place.restart_proxies()
    held.wait_for(lambda: held.counts["back"] - before["back"] >= sessions)
    away_s = sorted(held.away_s)
    return {
        **{name: held.counts[name] - before[name] for name in ("lost", "back", "back_with_session", "refused")},
        "open": held.counts["open"],
        "all_listen_s": listening_s - killed_s,
        "all_back_s": held.last_back_s - killed_s,
        "away_p50_s": away_s[len(away_s) // 2] if away_s else 0.0,
    }


def main() -> int:
    """0 when the figures are there."""
    parser = argparse.ArgumentParser(description="Measure MQTT sessions that come back all at once.")
    parser.add_argument("--sessions", type=int, default=50_000)
    parser.add_argument("--proxies", type=int, default=4)
    parser.add_argument("--loads", type=int, default=4)
    parser.add_argument("--at-once", type=int, default=2_500, help="connects of one load process under way at most")
    said = parser.parse_args()
    found = measure_mqtt_reconnects(said.sessions, said.proxies, said.loads, said.at_once)
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
