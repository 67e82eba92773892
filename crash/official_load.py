"""Producers and consumers of the official Python client that note all they do in a history."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

from crash.history import HistoryWriter

__all__ = ["FIFO_TOPIC", "GROUPS", "NORMAL_TOPIC", "FailedSend", "OfficialLoad"]

NORMAL_TOPIC = "crash-normal"
FIFO_TOPIC = "crash-fifo"
GROUPS = {NORMAL_TOPIC: "crash-normal-readers", FIFO_TOPIC: "crash-fifo-readers"}

SENDERS = 3
"""Threads that send to each topic; each has a message group of its own in the FIFO topic."""

INVISIBLE_S = 20
_RECEIVED_AT_ONCE = 32
_AWAIT_S = 1
_SHOWN_CHARACTERS = 200
_FILLER = b"0123456789" * 20


class FailedSend(NamedTuple):
    """A send that the client gave up, and what it said."""

    began_s: float
    ended_s: float
    text: str


class OfficialLoad:
    """Clients that talk to one life of a server, until `stop`. Histories of all lives go to one directory.

    `has_one_queue` says that the normal topic has one queue, so that the offsets of its messages can be compared.
    `pause_s` lies between two sends of a thread.
    """

    def __init__(
        self,
        address: str,
        histories: Path,
        life: int,
        *,
        is_sending: bool = True,
        has_one_queue: bool = True,
        pause_s: float = 0.0,
        invisible_s: int = INVISIBLE_S,
    ) -> None:
        logging.getLogger("rocketmq").setLevel(logging.CRITICAL)
        self.acknowledged = 0
        self.delivered: set[str] = set()
        self.last_ok_s: dict[str, float] = {}
        """When each sender's last message was acknowledged; a sender is its topic and number."""
        self.failed_sends: list[FailedSend] = []
        self._has_one_queue = has_one_queue
        self._pause_s = pause_s
        self._invisible_s = invisible_s
        self._configuration = ClientConfiguration(address, Credentials())
        self._life = life
        self._stopping = threading.Event()
        self._histories = histories
        self._writers: list[HistoryWriter] = []
        self._clients: list[Any] = []
        self._threads: list[threading.Thread] = []
        for topic in GROUPS:
            if is_sending:
                self._start_senders(topic)
            self._start_consumer(topic)

    def _writer(self, client: str) -> HistoryWriter:
        self._writers.append(HistoryWriter(self._histories, f"{client}-{self._life}"))
        return self._writers[-1]

    def _start_senders(self, topic: str) -> None:
        producer = Producer(self._configuration, (topic,))
        producer.startup()
        self._clients.append(producer)
        for number in range(SENDERS):
            writer = self._writer(f"{topic}-sender-{number}")
            self._start(partial(self._send, producer, writer, topic, number))

    def _start_consumer(self, topic: str) -> None:
        filters = {topic: FilterExpression("*")}
        consumer = SimpleConsumer(self._configuration, GROUPS[topic], filters, await_duration=_AWAIT_S)
        consumer.startup()
        self._clients.append(consumer)
        writer = self._writer(f"{topic}-consumer")
        self._start(partial(self._consume, consumer, writer))

    def _start(self, work: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()

    def _send(self, producer: Any, writer: HistoryWriter, topic: str, number: int) -> None:
        lane = f"lane-{number}" if topic == FIFO_TOPIC else ""
        for count in itertools.count():
            if self._stopping.is_set():
                return
            name = f"{topic}.{self._life}.{number}.{count}"
            message = Message()
            message.topic = topic
            message.body = name.encode() + b" " + _FILLER[: count % len(_FILLER)]
            if lane:
                message.message_group = lane
            writer.write("invoke", name, checksum=crc32(message.body), lane=lane)
            began_s = time.monotonic()
            try:
                receipt = producer.send(message)
            except Exception as error:  # noqa: BLE001 - whatever the client raises, nobody knows whether it was stored
                writer.write("unknown", name, value=str(error)[:_SHOWN_CHARACTERS])
                self.failed_sends.append(FailedSend(began_s, time.monotonic(), str(error)))
                self._stopping.wait(0.05)
                continue
            # The receipt's queue is the one that the client had in mind; a message group has a queue of its own.
            offset = receipt.offset if lane or self._has_one_queue else -1
            writer.write("ok", name, queue=lane or topic, queue_offset=offset)
            self.acknowledged += 1
            self.last_ok_s[f"{topic}.{number}"] = time.monotonic()
            if self._pause_s:
                self._stopping.wait(self._pause_s)

    def _consume(self, consumer: Any, writer: HistoryWriter) -> None:
        while not self._stopping.is_set():
            try:
                for message in consumer.receive(_RECEIVED_AT_ONCE, self._invisible_s):
                    name = message.body.split(b" ", 1)[0].decode("ascii", "replace")
                    writer.write("delivered", name, checksum=crc32(message.body))
                    self.delivered.add(name)
                    writer.write("ack", name)
                    consumer.ack(message)
                    writer.write("acked", name)
            except Exception:  # noqa: BLE001 - the server is gone or going; what was not acknowledged comes again
                self._stopping.wait(0.05)

    def stop(self) -> None:
        """End the threads and the clients, whether the server is there or not."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(10)
        for client in self._clients:
            try:
                client.shutdown()
            except Exception:  # noqa: BLE001 - the client cannot say goodbye to a server that is gone
                continue
        for writer in self._writers:
            writer.close()
