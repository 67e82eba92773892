"""Clients that talk to the brokers themselves, queue by queue, and note all they do: for the check of each queue."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Final
from zlib import crc32

from crash.history import Event, HistoryWriter
from crash.queue_linearizability import LogEntry, QueueLog, QueueVerdict, check_queues
from millstream.client.blocking import BlockingClient
from millstream.client.values import QueueAddress
from millstream.model.errors import MillstreamError
from millstream.model.message import Message
from millstream.model.topic import TopicConfig

__all__ = ["DIRECT_QUEUES", "DIRECT_TOPIC", "DirectLoad", "check_direct", "create_direct_topic"]

DIRECT_TOPIC: Final = "crash-direct"
DIRECT_QUEUES: Final = 2
"""Each has a sender of its own, which sends nothing twice, and all have one reader."""

_TIMEOUT_S = 1.0
_PAUSE_S = 0.01
_AGAIN_S = 0.02
_FILLER = b"0123456789" * 40


def create_direct_topic(nameservers: str) -> None:
    """Create the topic of the load."""
    with BlockingClient(nameservers) as client:
        client.create_topic(TopicConfig(DIRECT_TOPIC, read_queues=DIRECT_QUEUES, write_queues=DIRECT_QUEUES))


class DirectLoad:
    """Runs from the start to `stop`. `histories` is the directory of the lines."""

    def __init__(self, nameservers: str, histories: Path) -> None:
        self.acknowledged = 0
        self.failures: list[str] = []
        """What sends failed with; they are not repeated."""
        self._nameservers = nameservers
        self._stopping = threading.Event()
        self._writers = [HistoryWriter(histories, f"direct-{number}") for number in range(DIRECT_QUEUES + 1)]
        self._threads = [threading.Thread(target=self._send, args=[number]) for number in range(DIRECT_QUEUES)]
        self._threads.append(threading.Thread(target=self._read))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        for writer in self._writers:
            writer.close()

    def _send(self, number: int) -> None:
        writer = self._writers[number]
        with BlockingClient(self._nameservers, timeout_s=_TIMEOUT_S) as client:
            for count in itertools.count():
                if self._stopping.is_set():
                    return
                name = f"direct.{number}.{count}"
                body = name.encode() + b" " + _FILLER[: count % len(_FILLER)]
                writer.write("invoke", name, checksum=crc32(body), queue=str(number))
                try:
                    queue = _find_queue(client, number)
                    (sent,) = client.send_many([Message(DIRECT_TOPIC, body)], queue=queue, retries=0)
                except MillstreamError as error:
                    writer.write("unknown", name, value=f"{error.name}: {error}")
                    self.failures.append(f"{error.name}: {error}")
                    client.conversations.doubt_route(DIRECT_TOPIC)
                    self._stopping.wait(_AGAIN_S)
                    continue
                writer.write("ok", name, queue=str(number), queue_offset=sent.queue_offset)
                self.acknowledged += 1
                self._stopping.wait(_PAUSE_S)

    def _read(self) -> None:
        writer = self._writers[-1]
        offsets = [0] * DIRECT_QUEUES
        with BlockingClient(self._nameservers, timeout_s=_TIMEOUT_S) as client:
            for count in itertools.count():
                if self._stopping.is_set():
                    return
                number = count % DIRECT_QUEUES
                try:
                    offsets[number] = _pull(client, writer, number, offsets[number], f"read.{count}")
                except MillstreamError:
                    client.conversations.doubt_route(DIRECT_TOPIC)
                self._stopping.wait(_AGAIN_S)


def _find_queue(client: BlockingClient, number: int) -> QueueAddress:
    return next(queue for queue in client.queues(DIRECT_TOPIC) if queue.queue_id == number)


def _pull(client: BlockingClient, writer: HistoryWriter, number: int, offset: int, name: str) -> int:
    """Pull once; the offset to go on from."""
    writer.write("reading", name, queue=str(number), queue_offset=offset)
    batch = client.pull(_find_queue(client, number), offset)
    for message in batch.messages():
        body = message.body
        where = {"queue": str(number), "queue_offset": message.queue_offset}
        writer.write("delivered", _name_of(body), checksum=crc32(body), read_id=name, **where)  # type: ignore[arg-type]
    writer.write("read", name, queue=str(number), queue_offset=batch.max_offset)
    return batch.next_offset


def check_direct(nameservers: str, events: list[Event], max_stale_s: float) -> QueueVerdict:
    """Hold the histories against what is in the queues now. Raises what reading raises."""
    with BlockingClient(nameservers) as client:
        logs = {str(number): _read_queue(client, number) for number in range(DIRECT_QUEUES)}
    return check_queues(events, logs, max_stale_s=max_stale_s)


def _read_queue(client: BlockingClient, number: int) -> QueueLog:
    entries: list[LogEntry] = []
    queue, offset, end = _find_queue(client, number), 0, 1
    while offset < end:
        batch = client.pull(queue, offset)
        entries += [LogEntry(one.queue_offset, _name_of(one.body), crc32(one.body)) for one in batch.messages()]
        offset, end = batch.next_offset, batch.max_offset
    return QueueLog(entries)


def _name_of(body: bytes) -> str:
    return body.split(b" ", 1)[0].decode("ascii", "replace")
