"""N3: a proxy is cut off from its brokers and back again, while official clients reach the proxy."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from crash.checker import check_history
from crash.history import Event, HistoryWriter, read_history
from crash.network import Network
from crash.network_cluster import NetworkCluster
from crash.official_load import FIFO_TOPIC, GROUPS, NORMAL_TOPIC, SENDERS, OfficialLoad
from crash.programme import ProgrammeRun, scratch_directory
from millstream.client.blocking import BlockingClient
from millstream.model.group import GroupConfig
from millstream.model.topic import MessageType, TopicConfig

__all__ = ["cut_proxy_from_brokers"]

NOTICED_S: Final = 8.0
"""Seconds after a cut from which on no message without a message group is refused, if one broker is left."""

BACK_S: Final = 10.0
"""Seconds after a healing within which every sender's messages are taken again."""

INVISIBLE_S: Final = 10
QUIET_S: Final = 25.0

_BROKERS = ("a", "b")
_PROXY = "proxy"
_ATTEMPTS = 1000
_PAUSE_S = 0.05
_LATE_S = 5.0
"""Seconds after a healing in which what was under way at the cut may still arrive."""

_CUTS = ("both_ways", "to_broker", "from_broker", "all")


def cut_proxy_from_brokers(run: ProgrammeRun) -> None:
    """N3. Cuts of 9 s from one broker (ci: 1), of 9 to 70 s from one or all (full: 8, soak: 200)."""
    rounds = run.by_size(1, 8, 200)
    kinds = run.random.sample(_CUTS, len(_CUTS)) if rounds > 1 else [run.random.choice(_CUTS[:3])]
    with scratch_directory(on_disk=True) as root, Network() as network, ExitStack() as running:
        histories = root / "histories"
        histories.mkdir()
        cluster = NetworkCluster(network, root, running)
        cluster.nameserver("ns")
        for name in _BROKERS:
            cluster.broker(name)
        address = cluster.proxy(_PROXY)
        _create(cluster.nameservers)
        faults = HistoryWriter(histories, "faults")
        load = OfficialLoad(address, histories, 0, has_one_queue=False, pause_s=_PAUSE_S, invisible_s=INVISIBLE_S)
        _wait_for_all(run, load, time.monotonic(), "the start")
        for number in range(rounds):
            cut_s = NOTICED_S + 1 if rounds == 1 else run.random.choice((NOTICED_S + 1, 25.0, 70.0))
            _round(run, cluster, load, faults, kinds[number % len(kinds)], cut_s)
        load.stop()
        _drain(run, address, histories)
        faults.close()
        _judge(run, histories, load)
        if run.failures:
            run.fail("the logs and histories of this run", root)


def _create(nameservers: str) -> None:
    with BlockingClient(nameservers) as client:
        client.create_topic(TopicConfig(NORMAL_TOPIC, read_queues=2, write_queues=2))
        client.create_topic(TopicConfig(FIFO_TOPIC, MessageType.FIFO, read_queues=2, write_queues=2))
        client.create_group(GroupConfig(GROUPS[NORMAL_TOPIC], max_attempts=_ATTEMPTS))
        client.create_group(GroupConfig(GROUPS[FIFO_TOPIC], fifo=True, max_attempts=_ATTEMPTS))


def _round(
    run: ProgrammeRun, cluster: NetworkCluster, load: OfficialLoad, faults: HistoryWriter, kind: str, cut_s: float
) -> None:
    lost = _BROKERS if kind == "all" else (run.random.choice(_BROKERS),)
    faults.write("fault", kind)
    for broker in lost:
        ends = (broker, _PROXY) if kind == "from_broker" else (_PROXY, broker)
        cluster.cut(*ends, one_way=kind in ("to_broker", "from_broker"))
    began_s = time.monotonic()
    time.sleep(cut_s)
    ended_s = time.monotonic()
    for broker in lost:
        cluster.heal(_PROXY, broker)
    faults.write("healed", kind)
    run.count("cuts")
    if kind != "all":
        _check_going_on(run, load, kind, began_s, ended_s)
    _wait_for_all(run, load, ended_s, f"the healing of {kind}")


def _check_going_on(run: ProgrammeRun, load: OfficialLoad, kind: str, began_s: float, ended_s: float) -> None:
    """While one broker is left, each sender to the normal topic goes on."""
    for number in range(SENDERS):
        if load.last_ok_s.get(f"{NORMAL_TOPIC}.{number}", 0.0) < began_s:
            run.fail(f"{kind}: a sender had no message taken in the {ended_s - began_s:.0f} s of the cut")


def _wait_for_all(run: ProgrammeRun, load: OfficialLoad, since_s: float, what: str) -> None:
    """Until each sender had a message taken since then."""
    senders = [f"{topic}.{number}" for topic in GROUPS for number in range(SENDERS)]
    while True:
        left = [name for name in senders if load.last_ok_s.get(name, 0.0) < since_s]
        took_s = time.monotonic() - since_s
        if not left:
            break
        if took_s > BACK_S:
            run.fail(f"{BACK_S:g} s after {what} nothing of {', '.join(left)} was taken")
            return
        time.sleep(0.05)
    run.counts["slowest_back_ms"] = max(run.counts.get("slowest_back_ms", 0), round(took_s * 1000))


def _drain(run: ProgrammeRun, address: str, histories: Path) -> None:
    events = read_history(histories)
    missing = {event.message for event in events if event.kind == "ok"}
    missing -= {event.message for event in events if event.kind == "delivered"}
    run.count("drained", len(missing))
    load = OfficialLoad(address, histories, 1, is_sending=False, invisible_s=INVISIBLE_S)
    known, quiet_since_s = 0, time.monotonic()
    while not missing <= load.delivered and time.monotonic() - quiet_since_s < QUIET_S:
        time.sleep(0.1)
        if len(load.delivered) != known:
            known, quiet_since_s = len(load.delivered), time.monotonic()
    load.stop()


def _judge(run: ProgrammeRun, histories: Path, load: OfficialLoad) -> None:
    events = read_history(histories)
    verdict = check_history(events, stuck_after_s=BACK_S)
    for broken in verdict.broken():
        run.fail(broken)
    for wrong in sorted(_senseless_duplicates(events)):
        run.fail(f"{wrong} came again although nothing was wrong when it was sent and acknowledged")
    unclear = [failed for failed in load.failed_sends if "MS-" not in failed.text]
    if unclear:
        run.fail(f"{len(unclear)} sends ended without a status of ours, as: {unclear[0].text[:300]}")
    run.counts |= {
        "acknowledged": verdict.acknowledged,
        "refused": len(load.failed_sends),
        "deliveries": verdict.deliveries,
        "duplicates": verdict.duplicates,
    }


def _senseless_duplicates(events: list[Event]) -> set[str]:
    """Messages that were sent in quiet times and came again after their acknowledgement, or before they could."""
    begun = [event.at_s for event in events if event.kind == "fault"]
    healed = [event.at_s + _LATE_S for event in events if event.kind == "healed"]
    windows = list(zip(begun, healed, strict=True))
    sent: dict[str, float] = {}
    quiet: set[str] = set()
    last: dict[str, float] = {}
    found: set[str] = set()
    for event in events:
        name = event.message
        if event.kind == "invoke":
            sent[name] = event.at_s
        elif event.kind == "ok" and not any(b <= event.at_s and sent[name] <= e for b, e in windows):
            quiet.add(name)
        elif event.kind == "delivered":
            if name in last and event.at_s - last[name] < INVISIBLE_S - 1:
                found.add(name)
            last[name] = event.at_s
        elif event.kind == "acked":
            last[name] = float("inf")
    return found & quiet
