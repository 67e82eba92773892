"""Rows that tell which conditions want them, before they leave the source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.model.message import Address, OutgoingMessage
from millstream.protocol.record import encode_record
from millstream.streams.connectors.rocketmq.reader import WantedRowBuilder, row_builder
from millstream.streams.plan.types import INT, STRING, DataType, Field, TypeKind
from millstream.streams.rules.conditions import Condition, Op, Predicate, all_of, negate
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.spark.source.messages import RecordMessages
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.rows import RowBuilder
from millstream.streams.spark.source.spec import SourceColumn, SourceSpec, WantedRows

HOST = Address("127.0.0.1", 10911)
PLACE = DataType(TypeKind.ROW, fields=(Field("city", STRING),))


def messages(events: Sequence[dict[str, Any] | bytes]) -> RecordMessages:
    bodies = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in events]
    return RecordMessages(
        [
            memoryview(
                encode_record(
                    OutgoingMessage("t", body, {}),
                    queue_id=0,
                    queue_offset=place,
                    log_offset=0,
                    store_timestamp_ms=1,
                    store_host=HOST,
                )
            )
            for place, body in enumerate(bodies)
        ]
    )


def built(directory: Path, conditions: Sequence[Condition], *, drops: bool) -> WantedRowBuilder:
    file = directory / f"{len(list(directory.iterdir()))}.rules"
    file.write_bytes(RuleSet(1, tuple(Rule(str(place), "", one) for place, one in enumerate(conditions))).encode())
    beside = (SourceColumn("command", STRING), SourceColumn("place", PLACE), SourceColumn("tags", PLACE))
    spec = SourceSpec("n", "t", (SourceColumn("id", INT),), Position(), wanted=WantedRows(str(file), beside, drops))
    builder = row_builder(spec)
    assert isinstance(builder, WantedRowBuilder)
    return builder


EVENTS: list[dict[str, Any] | bytes] = [
    {"id": 1, "command": "cmd.exe", "place": {"city": "x"}},
    {"id": 2, "command": "other"},
    b"no json",
    {"id": 3, "place": {"city": None}, "tags": {}},
]
CONDITIONS = (
    Predicate("command", Op.CONTAINS, ("cmd",)),
    all_of(negate(Predicate("command", Op.IN, ("cmd",))), Predicate("id", Op.GREATER, (0,))),
    Predicate("place->city", Op.IN, ("x",)),
    Predicate("tags", Op.IS_NULL),
)


def test_rows_tell_the_numbers_of_all_conditions_that_hold(tmp_path: Path) -> None:
    builder = built(tmp_path, CONDITIONS, drops=False)
    batch, malformed = builder.rows(messages(EVENTS))
    assert batch.schema == builder.schema
    assert batch.to_pydict() == {
        "id": [1, 2, 3],
        "__wanted": [[0, 1, 2, 3], [1, 3], []],
        "__tick": [None, None, None],
    }
    assert [refused.position for refused in malformed] == [2]


def test_rows_that_nobody_wants_are_left_out_where_all_others_may_be(tmp_path: Path) -> None:
    batch, malformed = built(tmp_path, CONDITIONS[:1], drops=True).rows(messages(EVENTS))
    assert batch.to_pydict() == {"id": [1], "__wanted": [[0]], "__tick": [None]}
    assert [refused.position for refused in malformed] == [2], "what is no row is still told"
    nothing, _ = built(tmp_path, CONDITIONS[:1], drops=True).rows(messages([]))
    assert nothing.num_rows == 0


def test_a_tick_wants_nothing(tmp_path: Path) -> None:
    (row,) = built(tmp_path, CONDITIONS, drops=True).tick(1_000).to_pylist()
    assert (row["id"], row["__wanted"]) == (None, None)
    assert row["__tick"] is not None


def test_a_source_without_conditions_makes_plain_rows() -> None:
    assert isinstance(row_builder(SourceSpec("n", "t", (SourceColumn("id", INT),), Position())), RowBuilder)


def test_a_condition_that_cannot_be_judged_fails_the_job(tmp_path: Path) -> None:
    from millstream.streams.errors import JobError

    builder = built(tmp_path, [Predicate("command", Op.CALL, ("no.such.module:function",))], drops=True)
    with pytest.raises(JobError, match="No module named"):
        builder.rows(messages(EVENTS))
