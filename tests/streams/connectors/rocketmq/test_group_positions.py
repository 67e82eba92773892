"""What a broker is told of a job's consumer groups."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.model.errors import Unreachable
from millstream.streams.connectors.rocketmq.group_positions import GroupPositions, JobGroupPosition
from millstream.streams.connectors.rocketmq.settings import SourceSettings
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.tables import Table
from millstream.streams.spark.source.position import Position


class Log:
    """A broker that notes what it is told, and may be away."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, dict[str, int]]] = []
        self.is_away = self.is_closed = False

    def show_progress(self, group: str, topic: str, offsets: Mapping[str, int]) -> None:
        if self.is_away:
            raise Unreachable("Nothing answers at b:1.")
        self.told.append((group, topic, dict(offsets)))

    def close(self) -> None:
        self.is_closed = True


def positions_of(log: Log) -> GroupPositions:
    table = Table("t", (), {"connector": "rocketmq", "topic": "orders", "consumer.group": "nightly"})
    settings = SourceSettings.of(table, JobSettings.of({}, "n:1"))
    return GroupPositions({"t": JobGroupPosition(settings, lambda: log)})  # type: ignore[arg-type,return-value]


def test_each_micro_batch_that_is_done_is_told_once() -> None:
    log = Log()
    groups = positions_of(log)
    groups.tell({"t": Position({"a/0": 5, "a/1": 7}), "other": Position({"a/0": 9})})
    groups.tell({"t": Position({"a/0": 5, "a/1": 8})})
    groups.tell({"other": Position({"a/0": 10})})
    groups.close()
    assert log.told == [("nightly", "orders", {"a/0": 5, "a/1": 7}), ("nightly", "orders", {"a/1": 8})]
    assert log.is_closed


def test_what_a_broker_that_was_away_did_not_hear_is_told_at_the_end() -> None:
    log = Log()
    groups = positions_of(log)
    log.is_away = True
    groups.tell({"t": Position({"a/0": 5})})
    assert log.told == []
    log.is_away = False
    groups.close()
    assert log.told == [("nightly", "orders", {"a/0": 5})]
