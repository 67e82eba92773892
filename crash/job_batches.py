"""What Spark noted of the micro-batches of a job that was killed, and what the topics around it hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.client.blocking import BlockingClient

__all__ = ["Batch", "batches_of_events", "end_group", "is_done", "is_noted", "planned", "topic_rows"]


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of the job `job`: its number, Spark's note, and the position at which it ends."""

    number: int
    note: Path
    end: dict[str, Any]


def planned(root: Path) -> list[Batch]:
    """The micro-batches in their order."""
    files = [file for file in (root / "checkpoints").glob("job/*/spark/offsets/*") if file.name.isdigit()]
    found = []
    for file in sorted(files, key=lambda one: int(one.name)):
        lines = file.read_text().splitlines()
        if len(lines) > 2:
            found.append(Batch(int(file.name), file, json.loads(lines[2])))
    return found


def is_done(root: Path, events: int) -> bool:
    """Whether so many events are read and the last micro-batch is noted as delivered."""
    batches = planned(root)
    return bool(batches) and sum(batches[-1].end["queues"].values()) >= events and is_noted(root)


def is_noted(root: Path) -> bool:
    """Whether the last micro-batch that was planned is noted as delivered."""
    note = planned(root)[-1].note
    return (note.parent.parent / "commits" / note.name).exists()


def batches_of_events(root: Path) -> dict[tuple[int, int], Batch]:
    """The micro-batch of each event, by queue and offset."""
    found = {}
    before: dict[str, int] = {}
    for batch in planned(root):
        queues: dict[str, int] = batch.end["queues"]
        for queue, end in queues.items():
            for place in range(before.get(queue, 0), end):
                found[int(queue.rpartition("/")[2]), place] = batch
        before = queues
    return found


def topic_rows(client: BlockingClient, topic: str) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    """The messages of a topic as JSON, each with its queue and offset."""
    for held in client.queue_ranges(topic):
        place = held.range.min_offset
        for batch in client.read(held.queue, place, held.range.max_offset):
            for message in batch.messages():
                yield (held.range.queue_id, place), json.loads(message.body)
                place += 1


def end_group(driver: subprocess.Popen[bytes]) -> None:
    """Kill the driver, and workers that would outlive it for a while."""
    try:
        os.killpg(driver.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
