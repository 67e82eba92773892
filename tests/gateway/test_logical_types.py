"""Types as Flink's REST API writes them; the expected texts are those of Flink's LogicalTypeJsonSerializer."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.gateway.logical_types import logical_type
from millstream.streams.plan.nodes import QueryPlan
from millstream.streams.sql.session.compiler import SqlSession

LONGEST = 2**31 - 1


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("BOOLEAN", {"type": "BOOLEAN", "nullable": True}),
        ("TINYINT", {"type": "TINYINT", "nullable": True}),
        ("INT NOT NULL", {"type": "INTEGER", "nullable": False}),
        ("BIGINT", {"type": "BIGINT", "nullable": True}),
        ("FLOAT", {"type": "FLOAT", "nullable": True}),
        ("DOUBLE", {"type": "DOUBLE", "nullable": True}),
        ("DECIMAL(10, 2)", {"type": "DECIMAL", "nullable": True, "precision": 10, "scale": 2}),
        ("DECIMAL", {"type": "DECIMAL", "nullable": True, "precision": 10, "scale": 0}),
        ("STRING", {"type": "VARCHAR", "nullable": True, "length": LONGEST}),
        ("VARCHAR(5)", {"type": "VARCHAR", "nullable": True, "length": 5}),
        ("CHAR(3)", {"type": "CHAR", "nullable": True, "length": 3}),
        ("BYTES", {"type": "VARBINARY", "nullable": True, "length": LONGEST}),
        ("BINARY(4)", {"type": "BINARY", "nullable": True, "length": 4}),
        ("DATE", {"type": "DATE", "nullable": True}),
        ("TIME", {"type": "TIME_WITHOUT_TIME_ZONE", "nullable": True, "precision": 0}),
        ("TIMESTAMP(3)", {"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "nullable": True, "precision": 3}),
        ("TIMESTAMP_LTZ(3)", {"type": "TIMESTAMP_WITH_LOCAL_TIME_ZONE", "nullable": True, "precision": 3}),
        ("ARRAY<INT>", {"type": "ARRAY", "nullable": True, "elementType": {"type": "INTEGER", "nullable": True}}),
        (
            "MAP<BIGINT, DATE>",
            {
                "type": "MAP",
                "nullable": True,
                "keyType": {"type": "BIGINT", "nullable": True},
                "valueType": {"type": "DATE", "nullable": True},
            },
        ),
        (
            "ROW<a INT, b DATE>",
            {
                "type": "ROW",
                "nullable": True,
                "fields": [
                    {"name": "a", "fieldType": {"type": "INTEGER", "nullable": True}},
                    {"name": "b", "fieldType": {"type": "DATE", "nullable": True}},
                ],
            },
        ),
    ],
)
def test_a_declared_type_is_written_as_flink_writes_it(declared: str, expected: dict[str, Any]) -> None:
    script = f"CREATE TABLE t (c {declared}) WITH ('connector' = 'rocketmq', 'topic' = 't'); SELECT c FROM t"
    plan = SqlSession().compile(script)[-1]
    assert isinstance(plan, QueryPlan)
    assert logical_type(plan.query.schema.fields[0].type) == expected


def test_a_null_without_a_type_has_no_more_than_its_name() -> None:
    plan = SqlSession().compile("SELECT NULL")[-1]
    assert isinstance(plan, QueryPlan)
    assert logical_type(plan.query.schema.fields[0].type) == {"type": "NULL"}
