"""Passes over one table end each micro-batch at the same place, however rows come in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable

from millstream.streams.spark.source.agreed_ends import MOVED, AgreedReader
from millstream.streams.spark.source.position import Position

LIMIT = ReadAllAvailable()


def at(offset: int, **more: Any) -> dict[str, Any]:
    return Position({"b/0": offset}, name="t", **more).to_json()


class Growing(DataSourceStreamReader):
    """A reader of a queue that grows whenever somebody looks."""

    length = 10

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return at(0)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self.asked.append(start)
        Growing.length += 1
        return at(Growing.length)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        return [start, end]

    def read(self, partition: Any) -> Any:
        return iter([partition])


class Resting(Growing):
    """A reader of a queue that does not grow."""

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        self.asked.append(start)
        return start


def test_passes_agree_in_every_micro_batch_whoever_is_asked_first(tmp_path: Path) -> None:
    passes = [AgreedReader(Growing(), str(tmp_path / "t")) for _ in range(3)]
    starts = [at(0)] * 3
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        ends = {place: passes[place].latestOffset(starts[place], LIMIT) for place in order}
        assert len({end["queues"]["b/0"] for end in ends.values()}) == 1
        assert ends[0]["queues"]["b/0"] > starts[0]["queues"]["b/0"]
        starts = [ends[place] for place in range(3)]


def test_a_pass_that_stands_further_looks_for_itself_and_the_others_follow(tmp_path: Path) -> None:
    near, far = (AgreedReader(Growing(), str(tmp_path / "t")) for _ in range(2))
    first = near.latestOffset(at(0), LIMIT)
    second = far.latestOffset(at(first["queues"]["b/0"] + 100), LIMIT)
    assert second != first
    # Whoever is behind takes the answer of who is in front, so that they meet.
    assert near.latestOffset(first, LIMIT) == second


def test_that_nothing_came_is_taken_from_nobody_who_looked_before_this_pass_began(tmp_path: Path) -> None:
    AgreedReader(Resting(), str(tmp_path / "t")).latestOffset(at(5), LIMIT)
    late = Growing()
    assert AgreedReader(late, str(tmp_path / "t")).latestOffset(at(5), LIMIT) != at(5)
    assert late.asked == [at(5)]


def test_a_single_pass_writes_no_file(tmp_path: Path) -> None:
    assert AgreedReader(Resting(), "").latestOffset(at(5), LIMIT) == at(5)
    assert list(tmp_path.iterdir()) == []


def test_an_offset_of_all_tables_is_read_by_the_name_of_the_own_one() -> None:
    reader = Resting()
    moved = {MOVED: {"u": {"queues": {}, "name": "u"}, "t": at(9)}}
    agreed = AgreedReader(reader, "")
    assert agreed.latestOffset(moved, LIMIT) == at(9)
    assert agreed.partitions(moved, at(11)) == [at(9), at(11)]
