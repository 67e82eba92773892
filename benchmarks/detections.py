"""All Sigma rules over real events: parsing, the stage alone, a plain loop, and a whole job through the broker."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa

from benchmarks.job_runs import measured_run
from benchmarks.rsigma import measure_rsigma
from millstream.client.blocking import BlockingClient
from millstream.client.bulk.blocking_producer import BlockingBulkProducer
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.server.child import ServerProcess
from millstream.streams.jobs.runner import JobRunner
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.rule_formats.sigma import read_rules
from millstream.streams.rules.event_rows import Places
from millstream.streams.rules.reference import evaluate, field_reader
from millstream.streams.rules.rule import RuleSet
from millstream.streams.rules.stage.raw_events import EventReader
from millstream.streams.rules.stage.stage import RuleStage
from millstream.streams.rules.store import RuleStore
from millstream.streams.spark.runtime.session import SessionOptions, start_session
from millstream.streams.sql.session.compiler import SqlSession
from millstream.telemetry.processes import ProcessTree

__all__ = ["SIGMA_RULES", "measure_detections"]

SIGMA_RULES = "SIGMA_RULES"
"""Names in the environment a directory of Sigma rules; without it nothing is measured."""

_QUEUES = 4
_EVENTS_PER_CALL = 1_000
_EVENTS_PER_BATCH = 16_000
_PLAIN_EVENTS = 1_000
_REPEATS = int(os.environ.get("DETECTION_REPEATS", "4"))
"""How often the events are sent; each time they are the same, as a day's events mostly are."""
_LIMIT_S = 1_800.0

_JOB = """
CREATE TABLE hits (rule STRING, event STRING) WITH ('connector' = 'rules', 'topic' = '{topic}', 'store' = '{store}');
CREATE TABLE nowhere (rule STRING, event STRING) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT rule, event FROM hits;
"""

Figures = dict[str, Any]


def measure_detections(events: Sequence[str]) -> Figures:
    """Microseconds an event of parsing, stage and plain loop on one core, and events/s of the job on all."""
    rules = os.environ.get(SIGMA_RULES)
    if not rules:
        return {"skipped": f"{SIGMA_RULES} names no directory of rules"}
    imported = read_rules(rules)
    rule_set = RuleSet(1, imported.rules, imported.paths)
    bodies = [event.encode() for event in events]
    figures: Figures = {
        "rules": len(imported.rules),
        "refused": len(imported.refused),
        "events": len(bodies),
        "bytes_an_event": round(sum(map(len, bodies)) / len(bodies)),
        **_alone(rule_set, bodies),
        "plain_loop_us": _plain_us(rule_set, bodies[:: max(1, len(bodies) // _PLAIN_EVENTS)]),
    }
    figures["rsigma"] = measure_rsigma(rules, bodies)
    print(figures, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        figures["job"] = _through_the_broker(Path(scratch), rule_set, bodies)
    return figures


def _batches(bodies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(bodies), _EVENTS_PER_BATCH):
        yield bodies[start : start + _EVENTS_PER_BATCH]


def _alone(rule_set: RuleSet, bodies: Sequence[bytes]) -> Figures:
    stage, found = RuleStage(rule_set), {}
    reader = EventReader(Places(rule_set.paths), stage.class_fields)
    for name in ("cold", "warm"):
        parse_s = judge_s = 0.0
        hits = 0
        for batch in _batches(bodies):
            began_s = time.process_time()
            events, _refused = reader.read(batch)
            parsed_s = time.process_time()
            hits += len(stage.evaluate(events).rows)
            parse_s += parsed_s - began_s
            judge_s += time.process_time() - parsed_s
        found[f"parse_us_{name}"] = round(parse_s / len(bodies) * 1e6, 1)
        found[f"stage_us_{name}"] = round(judge_s / len(bodies) * 1e6, 1)
        found["hits"] = hits
    began_s = time.process_time()
    for body in bodies:
        orjson.loads(body)
    found["parse_whole_us"] = round((time.process_time() - began_s) / len(bodies) * 1e6, 1)
    return found


def _plain_us(rule_set: RuleSet, bodies: Sequence[bytes]) -> float:
    """One rule at a time, by Python's `re`, over a sample."""
    events = [orjson.loads(body) for body in bodies]
    began_s = time.process_time()
    for event in events:
        field_of = field_reader(event, rule_set.paths)
        for rule in rule_set.rules:
            evaluate(rule.condition, field_of)
    return round((time.process_time() - began_s) / len(events) * 1e6, 1)


def _through_the_broker(directory: Path, rule_set: RuleSet, bodies: Sequence[bytes]) -> Figures:
    RuleStore(directory / "rules").publish(lambda _before: rule_set)
    with ServerProcess(directory / "data") as server:
        nameserver = server.addresses.nameserver
        for topic, fill in _FORMS.items():
            fill(nameserver, topic, bodies)
        count = len(bodies) * _REPEATS
        found: Figures = {}
        for topic in _FORMS:
            # A session for each, as `millstream rules run` starts it: a worker holds the stage of one job alone.
            session = start_session(SessionOptions(few_rows_in_java=True))
            try:
                runner = JobRunner(session, nameserver=nameserver, checkpoint_root=directory / topic)
                found[topic] = _run(runner, nameserver, topic, directory / "rules", count)
                print(topic, found[topic], flush=True)
            finally:
                session.stop()
    return found


def _fill(nameserver: str, topic: str, bodies: Sequence[bytes]) -> None:
    """One record for each event."""
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig(topic, read_queues=_QUEUES, write_queues=_QUEUES))
        repeated = itertools.chain.from_iterable(itertools.repeat(bodies, _REPEATS))
        while batch := list(itertools.islice(repeated, _EVENTS_PER_CALL)):
            client.send_many([Message(topic, body) for body in batch])


def _fill_in_bulk(nameserver: str, topic: str, bodies: Sequence[bytes]) -> None:
    """A thousand events in one record, as `ingest ... --bulk` sends them."""
    batches = {"queue.type": "BatchCQ"}
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig(topic, read_queues=_QUEUES, write_queues=_QUEUES, attributes=batches))
        with BlockingBulkProducer(client) as producer:
            for _ in range(_REPEATS):
                for start in range(0, len(bodies), _EVENTS_PER_CALL):
                    sent = pa.array(bodies[start : start + _EVENTS_PER_CALL], pa.binary())
                    producer.send_batch(topic, pa.record_batch({"body": sent}))


_FORMS: Final[dict[str, Callable[[str, str, Sequence[bytes]], None]]] = {"records": _fill, "bulk": _fill_in_bulk}
"""How the events lie in a topic."""


def _run(runner: JobRunner, nameserver: str, topic: str, store: Path, count: int) -> Figures:
    plan = SqlSession(nameserver=nameserver).compile(_JOB.format(topic=topic, store=store))[-1]
    assert isinstance(plan, JobPlan)
    run = measured_run(partial(runner.start, plan, name="detections", bounded=True), _LIMIT_S)
    return {
        "seconds": round(run.seconds, 1),
        "events_per_s": round(count / run.seconds),
        "events_per_s_once_it_runs": run.steady_rows_per_s and round(run.steady_rows_per_s),
        "cpu_us_an_event": round(run.cpu_s / count * 1e6, 1),
        "worker_peak_mb": _worker_peak_mb(),
        "hits": sum(run.progress.rows_out.values()),
    }


def _worker_peak_mb() -> int:
    """The most memory that any Python process of the session has had, shared pages included."""
    found = ProcessTree([os.getpid()]).cpu_s() or {}
    peaks = [0]
    for pid, kind in found:
        if kind == "python" and pid != os.getpid():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                peaks += [int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:")]
    return max(peaks)
