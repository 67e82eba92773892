"""Hits through a topic between two queries: bytes of a hit, what packing costs, and the job as one query and as two."""

from __future__ import annotations

import datetime
import itertools
import os
import random
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from benchmarks.job_runs import measured_run
from millstream.client.blocking import BlockingClient
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.rule_formats.alert_script import AlertScript
from millstream.streams.rules.conditions import Op, Predicate
from millstream.streams.rules.packed.packer import OFFSET, QUEUE, HitsPacker, PackedColumns
from millstream.streams.rules.packed.record import RowsHead, unpack
from millstream.streams.rules.rule import Measure, MeasureKind, Rule, RuleStatistics
from millstream.streams.rules.store import RuleStore
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["measure_parted"]

_ROWS = int(os.environ.get("PARTED_ROWS", "200000"))
"""Events of the jobs, each of which is a hit of two rules."""

_PACKED_ROWS = 20_000
_ROWS_PER_BATCH = 5_000
_ROWS_PER_CALL = 1_000
_KEYS = 100
_TOPIC_QUEUES = 4
_SEED = 7
_LIMIT_S = 1_800.0
_WINDOW_MS = 600_000
_FIRST_MS = 1_767_225_600_000

_COLUMNS = {
    "rule": pa.string(), "title": pa.string(), "level": pa.string(), "event_time": pa.timestamp("us", "UTC"),
    "measure": pa.string(), "window_ms": pa.int64(), "at_least": pa.int64(), "at_most": pa.int64(),
    "group_key": pa.string(), "measured": pa.string(), "hits": pa.int64(), QUEUE: pa.string(), OFFSET: pa.int64(),
}  # fmt: skip
_READ = tuple(name for name in _COLUMNS if name not in (QUEUE, OFFSET))

Figures = dict[str, Any]


def measure_parted() -> Figures:
    """Bytes of a hit between the queries as a part of its event, and seconds and processor time of both ways."""
    figures: Figures = {"rows_a_record": 1_000, "keys": _KEYS, "bytes_an_event": round(_bytes_an_event(), 1)}
    for kind in (MeasureKind.EVENTS, MeasureKind.VALUES):
        for queues in (1, _TOPIC_QUEUES):
            figures[f"{kind}_{queues}_queues"] = _packed(kind, queues)
    print(figures, flush=True)
    figures["jobs"] = _jobs()
    return figures


def _events(seed: int) -> Iterator[dict[str, Any]]:
    """Failed logons: 100 addresses, 300 users, some a second late."""
    chance = random.Random(seed)
    for number in itertools.count():
        address = chance.randrange(_KEYS)
        yield {
            "ts": _FIRST_MS + number * 7 + chance.randrange(1_000),
            "EventID": 4625,
            "IpAddress": f"10.0.{address // 16}.{address % 16}",
            "TargetUserName": f"user{chance.randrange(300)}",
            "Computer": f"host{chance.randrange(50)}.example.org",
        }


def _bytes_an_event() -> float:
    return sum(len(orjson.dumps(event)) for event in itertools.islice(_events(_SEED), _PACKED_ROWS)) / _PACKED_ROWS


def _packed(kind: MeasureKind, queues: int) -> Figures:
    """Hits of one rule as the two queries exchange them."""
    rows = [
        {
            "rule": f"guessing-{kind}", "title": "Somebody guesses passwords", "level": "high", "measure": kind,
            "event_time": datetime.datetime.fromtimestamp(event["ts"] / 1000, datetime.UTC), "window_ms": _WINDOW_MS,
            "at_least": 5, "at_most": None, "group_key": orjson.dumps([event["IpAddress"]]).decode(), "hits": 1,
            "measured": event["TargetUserName"] if kind is MeasureKind.VALUES else None, QUEUE: "broker-a/0",
            OFFSET: number,
        }
        for number, event in enumerate(itertools.islice(_events(_SEED), _PACKED_ROWS))
    ]  # fmt: skip
    hits = pa.RecordBatch.from_pylist(rows, pa.schema(list(_COLUMNS.items())))
    head = RowsHead("0123456789ab", 3, "", "", 0, 0, 0, 0, watermark_us=_FIRST_MS * 1000)
    packer = HitsPacker(PackedColumns.of(_READ), [f"broker-a/{number}" for number in range(queues)], head)
    began_s = time.process_time()
    starts = range(0, _PACKED_ROWS, _ROWS_PER_BATCH)
    records = [one for start in starts for one in packer.add(hits.slice(start, _ROWS_PER_BATCH))]
    records += packer.finish()
    packed_s = time.process_time()
    for record in records:
        unpack(record.text)
    size_bytes = sum(len(record.text) for record in records) / _PACKED_ROWS
    return {
        "records": len(records),
        "bytes_a_hit": round(size_bytes, 2),
        "percent_of_event": round(100 * size_bytes / _bytes_an_event(), 1),
        "pack_us": round((packed_s - began_s) / _PACKED_ROWS * 1e6, 2),
        "unpack_us": round((time.process_time() - packed_s) / _PACKED_ROWS * 1e6, 2),
    }


def _rules() -> tuple[Rule, ...]:
    return tuple(
        Rule(f"guessing-{kind}", "Somebody guesses passwords", Predicate("EventID", Op.IN, (4625,)),
             statistics=RuleStatistics(Measure(kind, "TargetUserName"), _WINDOW_MS, ("IpAddress",), 5))
        for kind in (MeasureKind.EVENTS, MeasureKind.VALUES)
    )  # fmt: skip


def _jobs() -> Figures:
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        nameserver = server.addresses.nameserver
        store = RuleStore(Path(scratch) / "rules")
        store.publish(lambda before: type(before)(before.version, _rules(), before.paths))
        with BlockingClient(nameserver) as client:
            _fill(client)
            session = start_session(SessionOptions())
            try:
                runner = JobRunner(session, nameserver=nameserver, checkpoint_root=Path(scratch) / "jobs")
                found = {
                    name: _run(runner, nameserver, store, name, more)
                    for name, more in (
                        ("warm", {}),
                        ("one_query", {}),
                        ("two_queries", {"hits.topic": "between"}),
                    )
                }
            finally:
                session.stop()
            ranges = client.queue_ranges("between")
            return {**found, "records_between": sum(held.range.max_offset for held in ranges)}


def _fill(client: BlockingClient) -> None:
    client.create_topic(TopicConfig("logons", read_queues=2, write_queues=2))
    events = (orjson.dumps(event) for event in itertools.islice(_events(_SEED), _ROWS))
    while batch := [Message("logons", body) for body in itertools.islice(events, _ROWS_PER_CALL)]:
        client.send_many(batch)


def _run(runner: JobRunner, nameserver: str, store: RuleStore, name: str, more: dict[str, str]) -> Figures:
    source = {"topic": "logons", "store": str(store.directory), "event-time.field": "ts", **more}
    script, _ = AlertScript(source, {"connector": "blackhole"}).text(_rules())
    plan = SqlSession(nameserver=nameserver).compile(script)[-1]
    assert isinstance(plan, JobPlan)
    run = measured_run(partial(runner.start, plan, name=name, bounded=True), _LIMIT_S)
    return {
        "events": _ROWS,
        "seconds": round(run.seconds, 1),
        "cpu_us_an_event": round(run.cpu_s / _ROWS * 1e6, 1),
        "alerts": run.progress.rows_out.get("counted_alerts", 0),
    }
