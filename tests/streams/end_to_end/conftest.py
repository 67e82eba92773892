"""One Spark session for the run, and topics that are filled before their server starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, filled_topic

from millstream.streams.dimension.directory import DIRECTORY_VARIABLE
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from object_stores import KEYS


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        # Workers get the environment that Java has from its start on.
        for key, value in KEYS.items():
            patch.setenv(key, value)
        session = start_session(SessionOptions(cores=2, memory_mb=900))
    yield session
    session.stop()


@pytest.fixture
def topic(tmp_path: Path) -> Callable[..., AbstractContextManager[Topic]]:
    """A server whose topic `t` holds the given (queue, body) pairs, each stored in a millisecond of its own."""
    return lambda rows, queues=1: filled_topic(tmp_path, rows, queues)


@pytest.fixture(scope="session", autouse=True)
def _dimensions_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Dimension tables of the tests are none of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DIRECTORY_VARIABLE, str(tmp_path_factory.mktemp("dimensions")))
        yield
