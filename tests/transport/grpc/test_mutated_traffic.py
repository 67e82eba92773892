from __future__ import annotations

import asyncio
import random

import pytest
from crash.mutated_http2 import mutated_traffic, play_traffic, recordings
from echo_service import Wire, port_of

from example_counts import scaled
from millstream.model.clock import ManualClock
from millstream.protocol.http2.frames import PREFACE
from millstream.transport.connection_memory import ConnectionMemory
from millstream.transport.freed_memory import FreedMemory

SEED = 20260
INPUTS = 300


@pytest.fixture(scope="module")
def recorded() -> list[list[bytes]]:
    return recordings(SEED)


def test_the_recordings_are_taken_without_a_fault(recorded: list[list[bytes]]) -> None:
    for frames in recorded:
        core = play_traffic(random.Random(1), PREFACE + b"".join(frames))
        assert core.failure is None
        assert len(frames) > 5


def test_the_core_takes_mutated_traffic_within_its_limits(recorded: list[list[bytes]]) -> None:
    ended = 0
    for number in range(scaled(INPUTS)):
        rng = random.Random(f"{SEED} {number}")
        ended += play_traffic(rng, mutated_traffic(rng, recorded)).failure is not None
    assert 0 < ended < scaled(INPUTS)


async def test_the_port_takes_mutated_traffic_and_nothing_is_left(recorded: list[list[bytes]]) -> None:
    clock, memory = ManualClock(), ConnectionMemory(freed=FreedMemory(trim=lambda: None, collect=lambda: None))
    clock.advance_ms(1_000_000)
    port, service = port_of(clock, memory)
    served = 0
    for number in range(scaled(INPUTS)):
        rng = random.Random(f"{SEED} {number}")
        raw = mutated_traffic(rng, recorded)
        wire = Wire(port, begins=False)
        at = 0
        while at < len(raw) and not wire.is_closed:
            size = rng.choice([1, 9, 500, len(raw)])
            wire.send(raw[at : at + size])
            at += size
            if rng.random() < 0.1:
                wire.read(rng.choice([0, 100, None]))
            if rng.random() < 0.1:
                await asyncio.sleep(0)
        clock.advance_ms(rng.choice([0, 100, 40_000]))
        port.end_late_calls()
        memory.sweep(clock.monotonic_s())
        served += len(service.took)
        service.took.clear()
        if not wire.is_closed:
            wire.vanish()
        for _ in range(5):
            await asyncio.sleep(0)
        left = (port.calls, port.connections, memory.used_bytes, len(service.tasks), len(port.deadlines))
        assert left == (0, 0, 0, 0, 0), f"input {number} of seed {SEED} leaves {left}"
    assert served, "the service is reached"
