"""A processor over an in-memory backend, with a clock that tests move."""

from __future__ import annotations

import pytest
from memory_backend import MemoryBackend

from millstream.model.clock import ManualClock
from millstream.model.topic import MessageType, TopicConfig
from millstream.proxy.processor import Processor


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def backend(clock: ManualClock) -> MemoryBackend:
    topics = [
        TopicConfig("orders", read_queues=2, write_queues=2),
        TopicConfig("ordered", MessageType.FIFO),
        TopicConfig("anything", MessageType.MIXED),
    ]
    return MemoryBackend(clock, {topic.name: topic for topic in topics})


@pytest.fixture
def processor(backend: MemoryBackend, clock: ManualClock) -> Processor:
    """Not started: tests call `sweep` themselves."""
    return Processor(backend, clock=clock)
