"""One Spark session for the run, and topics that are filled before their server starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, filled_topic

from millstream.streams.spark.session import SessionOptions, start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_session(SessionOptions(cores=2, memory_mb=900))
    yield session
    session.stop()


@pytest.fixture
def topic(tmp_path: Path) -> Callable[..., AbstractContextManager[Topic]]:
    """A server whose topic `t` holds the given (queue, body) pairs, each stored in a millisecond of its own."""
    return lambda rows, queues=1: filled_topic(tmp_path, rows, queues)
