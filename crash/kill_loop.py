"""S4, the kill -9 loop: a real server under load of the official client is killed again and again."""

from __future__ import annotations

import compileall
import time
from pathlib import Path

import millstream
from crash.checker import check_history
from crash.history import HistoryWriter, read_history
from crash.official_load import FIFO_TOPIC, GROUPS, NORMAL_TOPIC, OfficialLoad
from crash.programme import ProgrammeRun, Size, scratch_directory
from millstream.client.blocking import BlockingClient
from millstream.model.group import GroupConfig
from millstream.model.topic import MessageType, TopicConfig
from millstream.server.child import ServerProcess

__all__ = ["kill_again_and_again"]

SHORTEST_LIFE_S = 0.2
LONGEST_LIFE_S = {Size.SMOKE: 1.2, Size.CI: 1.2, Size.FULL: 3.0, Size.SOAK: 3.0}

READY_LIMIT_S = 2.0
"""At the 99th percentile a killed server is ready again after this time; looked at beyond CI size only."""

QUIET_S = 25.0
"""How long nothing may come before the last drain gives up: longer than a message can be invisible."""

_ATTEMPTS = 1000


def kill_again_and_again(run: ProgrammeRun) -> None:
    """S4. 10 kills (CI), 100 and 100,000 acknowledged messages (full), 5,000 (soak); half of them under sync-flush."""
    cycles, wanted = run.by_size(10, 100, 5_000), run.by_size(500, 100_000, 5_000_000)
    # As an installation does, whatever the environment says: else each start compiles all modules anew.
    compileall.compile_dir(Path(millstream.__file__).parent, quiet=2)
    with scratch_directory(on_disk=True) as root:
        data, histories = root / "data", root / "histories"
        histories.mkdir()
        faults = HistoryWriter(histories, "faults")
        ready_s: list[float] = []
        acknowledged = life = 0
        while life < cycles or acknowledged < wanted:
            acknowledged += _one_life(run, data, histories, faults, life, ready_s)
            life += 1
        _drain(run, data, histories, life)
        faults.close()
        _judge(run, histories, ready_s)
        if run.failures:
            run.fail("the data and histories of this run", root)


def _start(data: Path, *, sync_flush: bool) -> ServerProcess:
    return ServerProcess(data, options=("--sync-flush",) if sync_flush else ())


def _one_life(
    run: ProgrammeRun, data: Path, histories: Path, faults: HistoryWriter, life: int, ready_s: list[float]
) -> int:
    """Messages that were acknowledged between a start and the kill."""
    began_s = time.monotonic()
    server = _start(data, sync_flush=life % 2 == 1)
    ready_s.append(time.monotonic() - began_s)
    try:
        if not life:
            _create_topics(server)
        load = OfficialLoad(server.addresses.grpc, histories, life)
        if life:
            faults.write("healed")
        run.count("kills")
        time.sleep(run.random.uniform(SHORTEST_LIFE_S, LONGEST_LIFE_S[run.size]))
        faults.write("fault", f"kill {life}")
    finally:
        server.kill()
    load.stop()
    return load.acknowledged


def _create_topics(server: ServerProcess) -> None:
    with BlockingClient(server.addresses.nameserver) as client:
        # One queue, so that the offsets of all senders can be held against each other.
        client.create_topic(TopicConfig(NORMAL_TOPIC, read_queues=1, write_queues=1))
        client.create_topic(TopicConfig(FIFO_TOPIC, MessageType.FIFO))
        client.create_group(GroupConfig(GROUPS[NORMAL_TOPIC], max_attempts=_ATTEMPTS))
        client.create_group(GroupConfig(GROUPS[FIFO_TOPIC], fifo=True, max_attempts=_ATTEMPTS))


def _drain(run: ProgrammeRun, data: Path, histories: Path, life: int) -> None:
    """Consume what is left until all that was acknowledged has come or nothing comes any more."""
    events = read_history(histories)
    missing = {event.message for event in events if event.kind == "ok"}
    missing -= {event.message for event in events if event.kind == "delivered"}
    run.count("drained", len(missing))
    with _start(data, sync_flush=False) as server:
        load = OfficialLoad(server.addresses.grpc, histories, life, is_sending=False)
        known, quiet_since_s = 0, time.monotonic()
        while not missing <= load.delivered and time.monotonic() - quiet_since_s < QUIET_S:
            time.sleep(0.1)
            if len(load.delivered) != known:
                known, quiet_since_s = len(load.delivered), time.monotonic()
        load.stop()


def _judge(run: ProgrammeRun, histories: Path, ready_s: list[float]) -> None:
    verdict = check_history(read_history(histories), stuck_after_s=10.0)
    for broken in verdict.broken():
        run.fail(broken)
    ready_s.sort()
    slowest_s = ready_s[min(len(ready_s) - 1, len(ready_s) * 99 // 100)]
    if not run.is_small and slowest_s > READY_LIMIT_S:
        run.fail(f"at the 99th percentile the server was ready after {slowest_s:.2f} s")
    if not verdict.acknowledged:
        run.fail("nothing was acknowledged, so nothing was tested")
    run.counts |= {
        "acknowledged": verdict.acknowledged,
        "unknown": verdict.unknown,
        "deliveries": verdict.deliveries,
        "duplicates": verdict.duplicates,
        "ready_p50_ms": round(ready_s[len(ready_s) // 2] * 1000),
        "ready_p99_ms": round(slowest_s * 1000),
        "recovery_max_ms": round(max(verdict.recovery_s, default=0) * 1000),
    }
