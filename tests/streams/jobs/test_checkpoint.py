"""A checkpoint remembers which plan it serves and where reading began."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import field, make_dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.errors import JobError
from millstream.streams.jobs.checkpoint import Checkpoint, fingerprint
from millstream.streams.jobs.plan_text import plan_lines
from millstream.streams.plan.aggregates import AggregateCall, WindowAggregate
from millstream.streams.plan.expressions import Call, Column, Literal
from millstream.streams.plan.nodes import Filter, Node, Project, Scan
from millstream.streams.plan.tables import PhysicalColumn, Table, Watermark
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT, TOLD_IF_SET, DataType, TypeKind
from millstream.streams.plan.windows import Tumble
from millstream.streams.spark.source.position import Position

TIME = DataType(TypeKind.TIMESTAMP, precision=3)
TABLE = Table(
    "t",
    (PhysicalColumn("id", INT), PhysicalColumn("ts", TIME), PhysicalColumn("ts2", TIME)),
    {"connector": "rocketmq", "topic": "t", "scan.max-rows-per-trigger": "10"},
    Watermark("ts", 1000),
)
SCAN = Scan(TABLE, ("id", "ts", "ts2"))
ID = Column("id", INT)


def count(node: Node, size_ms: int = 1000, function: str = "COUNT") -> Node:
    return WindowAggregate(node, Tumble("ts", size_ms), (("id", ID),), (("n", AggregateCall(function, ID, BIGINT)),))


def digest(node: Node) -> str:
    return fingerprint([("out", node)])


def more_than(value: int) -> Node:
    return Filter(SCAN, Call(">", (ID, Literal(value, INT)), BOOLEAN))


def test_another_state_or_another_row_is_another_plan() -> None:
    nodes = [SCAN, count(SCAN), count(SCAN, 2000), count(SCAN, function="SUM"), more_than(1), more_than(2)]
    assert len({digest(node) for node in nodes}) == len(nodes)
    slower = replace(TABLE, watermark=Watermark("ts", 2000))
    assert digest(count(Scan(slower, SCAN.columns))) != digest(count(SCAN))


def test_limits_and_addresses_may_change_between_runs() -> None:
    moved = replace(TABLE, options={**TABLE.options, "nameserver": "h:1", "scan.max-rows-per-trigger": "5"})
    assert digest(Scan(moved, SCAN.columns)) == digest(SCAN)


@pytest.mark.process
def test_the_digest_is_the_same_in_a_process_with_another_hash_seed() -> None:
    node = Project(SCAN, (("a", Column("ts", TIME)), ("b", Column("ts2", TIME))), frozenset({"a", "b"}))
    program = (
        "from millstream.streams.jobs.checkpoint import fingerprint\n"
        "from millstream.streams.plan.nodes import *; from millstream.streams.plan.tables import *\n"
        "from millstream.streams.plan.expressions import *; from millstream.streams.plan.types import *\n"
        f"print(fingerprint([('out', {node!r})]))"
    )
    for kind in TypeKind:
        program = program.replace(repr(kind), f"TypeKind.{kind.name}")
    said = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert said == {digest(node)}


def test_a_field_that_plans_did_not_always_have_counts_only_where_it_is_set() -> None:
    before = make_dataclass("Part", [("length", int)])
    now = make_dataclass("Part", [("length", int), ("fixed", bool, field(default=False, metadata=TOLD_IF_SET))])
    assert fingerprint([("t", now(3))]) == fingerprint([("t", before(3))])
    assert fingerprint([("t", now(3, True))]) != fingerprint([("t", before(3))])
    lengths = [DataType(TypeKind.STRING, precision=3, fixed=fixed) for fixed in (False, True)]
    assert len({digest(Project(SCAN, (("a", Column("ts", of)),))) for of in lengths}) == 2


def test_reading_begins_once_and_the_job_keeps_its_identity(tmp_path: Path) -> None:
    first = Checkpoint.open(tmp_path / "c", "plan", lambda: {"t": Position({"q/0": 5}, name="t")})
    again = Checkpoint.open(tmp_path / "c", "plan", lambda: pytest.fail("asked twice"))
    assert (again.start("t"), again.job_id) == (first.start("t"), first.job_id)
    assert again.positions() == {"t": Position({"q/0": 5}, name="t")}
    assert not again.has_ended()


def test_a_directory_of_another_plan_is_refused(tmp_path: Path) -> None:
    Checkpoint.open(tmp_path, "plan", dict)
    with pytest.raises(JobError, match="another query") as refusal:
        Checkpoint.open(tmp_path, "other", dict)
    assert refusal.value.name == "CHECKPOINT_MISMATCH"


def refusal(directory: Path, before: Node, now: Node) -> JobError:
    Checkpoint.open(directory, digest(before), dict, plan_lines([("out", before)]))
    with pytest.raises(JobError) as refused:
        Checkpoint.open(directory, digest(now), dict, plan_lines([("out", now)]))
    return refused.value


def test_a_refusal_names_the_first_part_of_the_plan_that_differs_and_the_ways_out(tmp_path: Path) -> None:
    error = refusal(tmp_path / "sum", count(SCAN), count(SCAN, function="SUM"))
    assert "COUNT(id) AS n" in str(error)
    assert "SUM(id) AS n" in str(error)
    assert "Scan" not in str(error)
    assert "another name" in str(error)
    slower = Scan(replace(TABLE, watermark=Watermark("ts", 2000)), SCAN.columns)
    assert "it was 'watermark ts less 1000 ms' and is 'watermark ts less 2000 ms' now" in str(
        refusal(tmp_path / "watermark", SCAN, slower)
    )


def test_the_positions_are_those_of_the_latest_planned_micro_batch(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(tmp_path, "plan", dict)
    offsets = checkpoint.spark / "offsets"
    offsets.mkdir(parents=True)
    for batch, offset in (("9", 90), ("10", 100)):
        ended = f'{{"queues":{{"q/0":{offset}}},"cut_ms":7,"ended":true,"name":"a"}}'
        (offsets / batch).write_text(f'v1\n{{}}\n-\n{ended}\n{{"queues":{{"q/1":1}},"name":"b"}}')
    (offsets / ".10.crc").write_text("")
    assert checkpoint.positions() == {
        "a": Position({"q/0": 100}, 7, ended=True, name="a"),
        "b": Position({"q/1": 1}, name="b"),
    }
    assert checkpoint.has_ended()


def test_what_an_abandoned_micro_batch_left_is_cleared(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(tmp_path, "plan", dict)
    for directory in (checkpoint.spool, checkpoint.decoded):
        directory.mkdir()
        (directory / "left").touch()
    checkpoint.clear_scratch()
    assert not checkpoint.spool.exists()
    assert not checkpoint.decoded.exists()
