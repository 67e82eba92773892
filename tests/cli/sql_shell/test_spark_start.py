"""Spark's start behind the shell, played by a function."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from millstream.cli.streams.sql_shell.engine import SparkEngine, Tell
from millstream.model.errors import MillstreamError
from millstream.streams.errors import JobError


class Session:
    def __init__(self) -> None:
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


def test_spark_starts_once_and_all_get_the_same_session() -> None:
    starts: list[Any] = []

    def start(tell: Tell) -> Any:
        starts.append(Session())
        return starts[-1]

    engine = SparkEngine(start)
    engine.begin()
    engine.begin()
    assert engine.session(threading.Event()) is engine.session(threading.Event()) is starts[0]
    engine.close()
    assert (len(starts), starts[0].is_stopped) == (1, True)


def test_ctrl_c_ends_the_waiting_and_not_the_start() -> None:
    may_end, stopped = threading.Event(), threading.Event()
    session = Session()

    def start(tell: Tell) -> Any:
        tell("waiting for Java")
        stopped.set()
        may_end.wait()
        return session

    engine = SparkEngine(start)
    assert engine.session(stopped) is None
    may_end.set()
    stopped.clear()
    assert engine.session(stopped) is session


def test_a_failed_start_is_told_and_tried_again_the_next_time() -> None:
    session = Session()
    failures: list[Exception] = [JobError("JAVA_MISSING", "No Java."), RuntimeError("no memory")]

    def start(tell: Tell) -> Any:
        if failures:
            raise failures.pop(0)
        return session

    engine = SparkEngine(start)
    with pytest.raises(MillstreamError, match="No Java") as first:
        engine.session(threading.Event())
    with pytest.raises(MillstreamError, match="no memory") as second:
        engine.session(threading.Event())
    assert (first.value.name, second.value.name) == ("JAVA_MISSING", "SPARK_START_FAILED")
    assert engine.session(threading.Event()) is session


def test_nothing_that_never_started_is_stopped() -> None:
    engine = SparkEngine(lambda tell: pytest.fail("was started"))
    engine.close()
