"""A bucket of S3: what it refuses is told by meaning, and a broker's messages go there and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import TieredOptions
from millstream.model.clock import ManualClock
from millstream.model.message import OutgoingMessage
from millstream.model.operations import PullRequest, PullStatus
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record
from millstream.store.message_store import StoreOptions
from millstream.tiered.objects import ObjectNotFound, ObjectStoreAway, ObjectStoreDenied
from millstream.tiered.places import ObjectPlace
from s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, find_versitygw, run_versitygw

pytest.importorskip("obstore", reason="the package obstore (extra tiered) is not installed")
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = find_versitygw()
    if program is None:
        pytest.skip("versitygw is not installed: go install github.com/versity/versitygw/cmd/versitygw@latest")
    with run_versitygw(program, tmp_path_factory.mktemp("s3")) as found:
        yield found


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


@pytest.mark.usefixtures("keys")
def test_what_is_refused_is_told_by_meaning(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = ObjectPlace(f"s3://{BUCKET}/prefix", endpoint, "us-east-1").open()
    with pytest.raises(ObjectNotFound):
        there.get("nothing")
    with pytest.raises(ObjectStoreDenied, match="NoSuchBucket"):
        ObjectPlace("s3://no-such-bucket/p", endpoint, "us-east-1").open().put("key", b"x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(ObjectStoreDenied, match="SignatureDoesNotMatch"):
        ObjectPlace(f"s3://{BUCKET}/prefix", endpoint, "us-east-1").open().put("key", b"x")
    with pytest.raises(ObjectStoreAway):
        ObjectPlace(f"s3://{BUCKET}/prefix", "http://127.0.0.1:9", "us-east-1").open().put("key", b"x")


@pytest.mark.usefixtures("keys")
async def test_a_brokers_messages_go_there_and_come_back(endpoint: str, tmp_path: Path) -> None:
    place = ObjectPlace(f"s3://{BUCKET}/broker", endpoint, "us-east-1")
    clock = ManualClock()
    small = StoreOptions(segment_bytes=64 * 1024, consume_queue_entries=64, flush_interval_ms=20)
    options = BrokerOptions(store=small, tiered=TieredOptions(roll_s=0.0, stretch_bytes=32 * 1024, keep_hours=1000))
    broker = Broker(tmp_path / "b", options=options, clock=clock, open_objects=place.open)
    await broker.start()
    try:
        broker.topics.create(TopicConfig("t"))
        names = [f"message {number} {'x' * 100}" for number in range(1000)]
        for name in names:
            await broker.delivery.send([OutgoingMessage("t", name.encode(), {}, queue_id=0)])
        store = broker.maintenance.store
        store.flush()
        while broker.cold.report().behind_bytes:
            await broker.cold.upload_due()
        clock.advance_ms(100 * 3_600_000)
        await broker.delivery.send([OutgoingMessage("t", b"last", {}, queue_id=0)])
        store.write_checkpoint()
        await broker.maintenance.retain()
        assert store.log_start > 100_000
        found: list[str] = []
        while True:
            result = await broker.queues.pull(PullRequest("g", "t", 0, len(found), max_messages=64))
            if result.status is not PullStatus.FOUND:
                break
            found += [decode_record(record).body.decode() for record in result.records]
            await asyncio.sleep(0)
        assert found == [*names, "last"]
    finally:
        await broker.close()
