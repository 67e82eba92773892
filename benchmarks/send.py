"""Sends through the official Python client: one at a time and 32 in flight, 100-byte bodies."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from rocketmq import ClientConfiguration, Credentials, Message, Producer

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.telemetry.processes import TreeRecorder

__all__ = ["measure_send"]

_TOPIC = "bench"
_BODY = b"x" * 100
_SINGLE = 1500
_IN_FLIGHT = 32
_PIPELINED = 6000


def _message() -> Message:
    message = Message()
    message.topic = _TOPIC
    message.body = _BODY
    return message


def _measured(recorder: TreeRecorder, count: int, work: object) -> dict[str, object]:
    recorder.take()
    cpu_s, started_s = recorder.cpu_s(), time.monotonic()
    work(count)  # type: ignore[operator]
    seconds = time.monotonic() - started_s
    recorder.take()
    return {
        "messages": count,
        "messages_per_s": round(count / seconds),
        "server_cpu_us_per_message": round((recorder.cpu_s() - cpu_s) / count * 1e6),
    }


def measure_send() -> dict[str, object]:
    """Messages per second and processor microseconds of the server per message."""
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        with BlockingClient(server.addresses.nameserver) as client:
            client.create_topic(TopicConfig(_TOPIC))
        producer = Producer(ClientConfiguration(server.addresses.grpc, Credentials()), (_TOPIC,))
        producer.startup()
        recorder = TreeRecorder([server.pid])

        def one_by_one(count: int) -> None:
            for _ in range(count):
                producer.send(_message())

        def in_flight(count: int) -> None:
            slots = threading.Semaphore(_IN_FLIGHT)
            for _ in range(count):
                slots.acquire()
                producer.send_async(_message()).add_done_callback(lambda _done: slots.release())
            for _ in range(_IN_FLIGHT):
                slots.acquire()

        one_by_one(100)
        try:
            return {
                "one_at_a_time": _measured(recorder, _SINGLE, one_by_one),
                "32_in_flight": _measured(recorder, _PIPELINED, in_flight),
            }
        finally:
            producer.shutdown()
