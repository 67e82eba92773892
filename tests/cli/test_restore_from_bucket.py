"""`millstream broker restore --from s3://...`: a broker whose directory is lost has everything again that went up."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import run

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import TieredOptions
from millstream.model.clock import ManualClock
from millstream.model.group import GroupConfig
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PullRequest, PullStatus
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record
from millstream.store.message_store import StoreOptions
from millstream.tiered.places import ObjectPlace
from object_stores import Bucket, bucket  # noqa: F401 - a fixture
from s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, find_versitygw, run_versitygw

pytest.importorskip("obstore", reason="the package obstore (extra tiered) is not installed")
pytestmark = pytest.mark.process

QUEUES = 3
SMALL = StoreOptions(segment_bytes=64 * 1024, consume_queue_entries=64, flush_interval_ms=20)
TIERED = TieredOptions(roll_s=0.0, stretch_bytes=32 * 1024, keep_hours=1000)


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectPlace]:
    """An empty prefix of a bucket: versitygw's where that is installed, else moto's."""
    program = find_versitygw()
    if program is None:
        # It sets the keys of access itself.
        found: Bucket = request.getfixturevalue("bucket")
        yield ObjectPlace(f"s3://{found.name}/{uuid.uuid4().hex}", f"http://127.0.0.1:{found.port}", "us-east-1")
        return
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with run_versitygw(program, tmp_path / "s3") as endpoint:
        yield ObjectPlace(f"s3://{BUCKET}/prefix", endpoint, "us-east-1")


def broker_on(directory: Path, place: ObjectPlace, clock: ManualClock) -> Broker:
    options = BrokerOptions(store=SMALL, tiered=TIERED)
    return Broker(directory, options=options, clock=clock, open_objects=place.open)


async def read_all(broker: Broker) -> dict[int, list[str]]:
    """The bodies of each queue of `t`, in order."""
    found: dict[int, list[str]] = {}
    for queue_id in range(QUEUES):
        bodies = found[queue_id] = []
        while True:
            result = await broker.queues.pull(PullRequest("g", "t", queue_id, len(bodies), max_messages=64))
            if result.status is not PullStatus.FOUND:
                break
            bodies += [decode_record(record).body.decode() for record in result.records]
    return found


async def test_a_lost_directory_is_made_anew_from_a_bucket_with_every_message(
    tmp_path: Path, place: ObjectPlace
) -> None:
    clock = ManualClock()
    broker = broker_on(tmp_path / "lost", place, clock)
    await broker.start()
    sent: dict[int, list[str]] = {queue_id: [] for queue_id in range(QUEUES)}
    try:
        broker.topics.create(TopicConfig("t", read_queues=QUEUES, write_queues=QUEUES))
        broker.groups.create(GroupConfig("g"))
        for number in range(600):
            body = f"message {number} {'x' * 100}"
            await broker.delivery.send([OutgoingMessage("t", body.encode(), {}, queue_id=number % QUEUES)])
            sent[number % QUEUES].append(body)
        broker.queues.commit("g", "t", 1, 40)
        broker.maintenance.store.flush()
        while broker.cold.report().behind_bytes:
            await broker.cold.upload_due()
    finally:
        await broker.close()
    shutil.rmtree(tmp_path / "lost")
    words = ("--from", place.url, "--dir", str(tmp_path / "new"), "--endpoint", place.endpoint, "--region", "us-east-1")
    done = await asyncio.to_thread(run, "broker", "restore", *words, "-o", "json")
    assert (done.code, done.err) == (0, "")
    told = done.json()
    assert isinstance(told, dict)
    assert (told["broker"], told["cluster"]) == ("broker-a", "DefaultCluster")
    broker = broker_on(tmp_path / "new", place, clock)
    await broker.start()
    try:
        assert await read_all(broker) == sent
        assert broker.queues.own_offset("g", "t", 1) == 40
        await broker.delivery.send([OutgoingMessage("t", b"next", {}, queue_id=2)])
        assert await read_all(broker) == {**sent, 2: [*sent[2], "next"]}
    finally:
        await broker.close()
    again = await asyncio.to_thread(run, "broker", "restore", *words)
    assert again.code == 1
    assert "MS-4037" in again.err


async def test_a_bucket_without_a_broker_or_that_is_not_there_is_named(tmp_path: Path, place: ObjectPlace) -> None:
    where = ("--dir", str(tmp_path / "new"), "--endpoint", place.endpoint, "--region", "us-east-1")
    empty = await asyncio.to_thread(run, "broker", "restore", "--from", place.url, *where)
    assert empty.code == 1
    assert "MS-4037" in empty.err
    missing = await asyncio.to_thread(run, "broker", "restore", "--from", "s3://no-such-bucket/prefix", *where)
    assert missing.code == 1
    assert "MS-4032" in missing.err
    assert "Traceback" not in empty.err + missing.err
    assert not (tmp_path / "new").exists()
