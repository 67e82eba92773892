"""The Spark session of the tests of jobs, also where these tests run alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from millstream.streams.spark.runtime.session import SessionOptions, start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = start_session(SessionOptions(cores=2, memory_mb=900))
    yield session
    session.stop()
