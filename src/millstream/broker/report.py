"""A broker's look at itself: what waits on it, how full its disk is, how fast that disk is."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from millstream import __version__
from millstream.broker.broker import Broker
from millstream.model.topic import is_system_topic
from millstream.protocol.remoting.administration.broker_report import BrokerReport, GroupBacklog
from millstream.store.files import FileLayer
from millstream.telemetry.descriptors import descriptor_limit, descriptors_in_use

__all__ = ["MAX_LOOKED_AT", "MAX_TOLD", "broker_report"]

MAX_LOOKED_AT: Final = 10_000
"""Pairs of group and topic that one report looks at at most."""

MAX_TOLD: Final = 100
"""Backlogs and topics that a report names at most; the numbers are of all."""

_PAIRS_A_TURN: Final = 50
_PROBE_FILE: Final = "probe"
_PROBE_BYTES: Final = 4096


async def broker_report(broker: Broker, *, probes_disk: bool = False, tells_readers: bool = False) -> BrokerReport:
    """The report as of now. Gives others a turn where it looks at many groups.

    `probes_disk` times a sync, `tells_readers` names the groups of each topic.
    """
    backlog, left_out = await _backlog(broker)
    store = broker.maintenance.store
    size_bytes, free_bytes = FileLayer().disk(broker.directory)
    return BrokerReport(
        name=broker.name,
        cluster=broker.cluster,
        address=f"{broker.advertised.host}:{broker.advertised.port}",
        version=__version__,
        now_ms=broker.clock.now_ms(),
        is_drained=broker.maintenance.permission.is_drained,
        topics=len(broker.topics.all()),
        groups=len(broker.groups.all()),
        log_bytes=store.written_log_offset - store.log_start,
        disk_bytes=size_bytes,
        disk_free_bytes=free_bytes,
        is_disk_full=store.is_disk_full,
        failure=store.failure,
        sync_flush=broker.options.store.sync_flush,
        backlog=sorted(backlog, key=lambda one: -(one.ready + one.in_flight))[:MAX_TOLD],
        waiting_messages=sum(one.ready + one.in_flight for one in backlog),
        uncounted_pairs=left_out,
        unread_topics=_unread_topics(broker)[:MAX_TOLD],
        delayed_messages=broker.maintenance.delayed_messages,
        open_transactions=broker.maintenance.open_transactions,
        readers=_readers(broker) if tells_readers else None,
        sync_ms=await asyncio.to_thread(_sync_ms, broker.directory) if probes_disk else None,
        descriptors_in_use=descriptors_in_use(),
        descriptor_limit=descriptor_limit(),
    )


async def _backlog(broker: Broker) -> tuple[list[GroupBacklog], int]:
    positions, left_out = broker.queues.all_offsets(MAX_LOOKED_AT)
    found = []
    for number, (group, topic) in enumerate(dict.fromkeys((one.group, one.topic) for one in positions)):
        if number % _PAIRS_A_TURN == 0:
            await asyncio.sleep(0)
        # What the system keeps for itself has positions as well, and no group that anybody made.
        if broker.topics.find(topic) is None or broker.groups.find(group) is None:
            continue
        progress = broker.queues.own_progress(group, topic)
        ready, in_flight = sum(one.ready for one in progress), sum(one.in_flight for one in progress)
        if ready or in_flight:
            found.append(GroupBacklog(group, topic, ready, in_flight))
    return found, left_out


def _unread_topics(broker: Broker) -> list[str]:
    """Without those of the system, of dead letters and of retries, which nobody is expected to read."""
    store = broker.maintenance.store
    return [
        topic.name
        for topic in broker.topics.all()
        if not is_system_topic(topic.name)
        and not topic.name.startswith("%")
        and any(
            store.max_offset(topic.name, queue_id) > store.min_offset(topic.name, queue_id)
            for queue_id in range(topic.queues)
        )
        and not broker.queues.readers(topic.name)
    ]


def _readers(broker: Broker) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for position in broker.queues.all_offsets(MAX_LOOKED_AT)[0]:
        if broker.groups.find(position.group) is not None:
            found.setdefault(position.topic, set()).add(position.group)
    return {topic: sorted(groups) for topic, groups in found.items()}


def _sync_ms(directory: Path) -> float | None:
    """How long a small write and its sync take; None where the disk refuses them."""
    files = FileLayer()
    path = directory / _PROBE_FILE
    try:
        with files.open_descriptor(path, create=True) as descriptor:
            files.pwrite(descriptor, bytes(_PROBE_BYTES), 0)
            begin_s = time.perf_counter()
            files.fdatasync(descriptor)
            elapsed_ms = (time.perf_counter() - begin_s) * 1000
        files.remove(path)
    except OSError:
        return None
    return elapsed_ms
