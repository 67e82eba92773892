"""In another zone than UTC instants are read as that zone's calendar and clock, and its texts become instants."""

from __future__ import annotations

import pytest
from compiling import compiled, job

from millstream.streams.plan.expressions import Column
from millstream.streams.plan.nodes import Filter, Node, Project, QueryPlan, inputs_of, scans_of
from millstream.streams.plan.tables import ComputedColumn

TABLE = (
    "CREATE TABLE t (at TIMESTAMP_LTZ(3), plain TIMESTAMP(3), word STRING, n BIGINT, hour_ AS HOUR(at))"
    " WITH ('connector' = 'rocketmq', 'topic' = 't');"
)


def query(select: str, zone: str = "Asia/Tokyo") -> Node:
    plan = compiled(f"{TABLE} SET 'table.local-time-zone' = '{zone}'; {select}")[-1]
    assert isinstance(plan, QueryPlan)
    return plan.query


def value(expression: str, zone: str = "Asia/Tokyo") -> str:
    node = query(f"SELECT {expression} AS v FROM t", zone)
    assert isinstance(node, Project)
    return str(node.columns[0][1])


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("CAST(at AS STRING)", "CAST(LOCAL_TIME(at, 'Asia/Tokyo') AS STRING)"),
        ("CAST(at AS DATE)", "CAST(LOCAL_TIME(at, 'Asia/Tokyo') AS DATE)"),
        ("CAST(at AS TIMESTAMP(3))", "CAST(LOCAL_TIME(at, 'Asia/Tokyo') AS TIMESTAMP(3))"),
        ("CAST(plain AS TIMESTAMP_LTZ(3))", "INSTANT_OF(plain, 'Asia/Tokyo')"),
        ("CAST(word AS TIMESTAMP_LTZ(3))", "INSTANT_OF(CAST(word AS TIMESTAMP(3)), 'Asia/Tokyo')"),
        ("CAST(plain AS STRING)", "CAST(plain AS STRING)"),
        ("HOUR(at)", "HOUR(LOCAL_TIME(at, 'Asia/Tokyo'))"),
        ("HOUR(plain)", "HOUR(plain)"),
        ("EXTRACT(DAY FROM at)", "EXTRACT('DAY', LOCAL_TIME(at, 'Asia/Tokyo'))"),
        ("EXTRACT(EPOCH FROM at)", "EXTRACT('EPOCH', at)"),
        ("DATE_FORMAT(at, 'HH')", "DATE_FORMAT(LOCAL_TIME(at, 'Asia/Tokyo'), 'HH')"),
        ("FROM_UNIXTIME(n)", "DATE_FORMAT(LOCAL_TIME(TO_TIMESTAMP_LTZ(n, 0), 'Asia/Tokyo'), 'yyyy-MM-dd HH:mm:ss')"),
        ("CURRENT_DATE", "CAST(LOCAL_TIME(CURRENT_TIMESTAMP(), 'Asia/Tokyo') AS DATE NOT NULL)"),
        ("CASE WHEN n > 1 THEN HOUR(at) END", "CASE WHEN >(n, 1) THEN HOUR(LOCAL_TIME(at, 'Asia/Tokyo')) END"),
    ],
)
def test_an_instant_is_read_in_the_zone_and_a_time_without_one_as_it_is(expression: str, wanted: str) -> None:
    assert value(expression).replace(" NOT NULL", "") == wanted.replace(" NOT NULL", "")


def test_rounding_an_instant_gives_an_instant_again() -> None:
    assert value("FLOOR(at TO DAY)") == "INSTANT_OF(FLOOR(LOCAL_TIME(at, 'Asia/Tokyo'), 'DAY'), 'Asia/Tokyo')"


@pytest.mark.parametrize("zone", ["UTC", "Z", "Etc/UTC"])
def test_in_utc_nothing_changes(zone: str) -> None:
    assert value("HOUR(at)", zone) == "HOUR(at)"


def test_conditions_computed_columns_and_sinks_are_in_the_zone_too() -> None:
    node = query("SELECT hour_ FROM t WHERE HOUR(at) > 8")
    (below,) = inputs_of(node)
    assert isinstance(below, Filter)
    assert str(below.predicate) == ">(HOUR(LOCAL_TIME(at, 'Asia/Tokyo')), 8)"
    computed = next(column for column in next(scans_of(node)).table.columns if isinstance(column, ComputedColumn))
    assert str(computed.expression) == "HOUR(LOCAL_TIME(at, 'Asia/Tokyo'))"
    made = f"{TABLE} CREATE TABLE o (x TIMESTAMP(3)) WITH ('connector' = 'print'); SET 'table.local-time-zone' = 'Asia/Tokyo';"
    (sink,) = job(f"{made} INSERT INTO o SELECT at FROM t").sinks
    assert isinstance(sink.input, Project)
    assert "LOCAL_TIME" in str(sink.input.columns[0][1])


def test_a_view_is_read_in_the_zone_of_the_job_that_reads_it() -> None:
    made = f"{TABLE} CREATE VIEW v AS SELECT HOUR(at) AS h FROM t;"
    plan = compiled(f"{made} SET 'table.local-time-zone' = 'GMT+08:00'; SELECT h FROM v")[-1]
    assert isinstance(plan, QueryPlan)
    texts = [str(value) for value in _values(plan.query)]
    assert "HOUR(LOCAL_TIME(at, 'GMT+08:00'))" in texts


def _values(node: Node) -> list[object]:
    own: list[object] = [value for _, value in node.columns] if isinstance(node, Project) else []
    for below in inputs_of(node):
        own += _values(below)
    return [value for value in own if not isinstance(value, Column)]
