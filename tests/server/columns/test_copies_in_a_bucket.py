"""A copy in a bucket of S3: put there by the process that copies, read by readers of Iceberg that know nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("obstore")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

from pyiceberg.catalog.sql import SqlCatalog

from millstream.broker import cold_tier, column_copies
from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import TieredOptions
from millstream.model.message import OutgoingMessage
from millstream.model.topic import ColumnAttributes, TopicConfig, copy_attributes
from millstream.server.columns.column_process import ColumnProcess
from millstream.server.columns.orders import WorkerOptions
from millstream.tiered.places import ObjectPlace
from s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, find_versitygw, run_versitygw

pytestmark = pytest.mark.process


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    program = find_versitygw()
    if program is None:
        pytest.skip("versitygw is not installed: go install github.com/versity/versitygw/cmd/versitygw@latest")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with run_versitygw(program, tmp_path / "s3") as found:
        yield found


async def test_a_table_in_a_bucket_has_each_message_once(
    tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_tier, "UPLOAD_INTERVAL_S", 1e6)
    monkeypatch.setattr(column_copies, "COPY_INTERVAL_S", 1e6)
    url, catalog = f"s3://{BUCKET}/prefix", f"sqlite:///{tmp_path}/tables.db"
    work = ColumnProcess(WorkerOptions(url, endpoint, "us-east-1", catalog))
    broker = Broker(
        tmp_path / "broker",
        options=BrokerOptions(tiered=TieredOptions(roll_s=0.0)),
        open_objects=ObjectPlace(url, endpoint, "us-east-1").open,
        make_column_work=lambda: work,
    )
    await broker.start()
    try:
        broker.topics.create(TopicConfig("t", attributes=copy_attributes(ColumnAttributes("id BIGINT", "json"))))
        messages = [OutgoingMessage("t", b'{"id": %d}' % number, {}, queue_id=number % 4) for number in range(100)]
        await broker.delivery.send(messages)
        broker.maintenance.store.flush()
        await broker.cold.upload_due()
        while await broker.columns.copy_due():
            pass
        [status] = broker.columns.status()
        assert (status.rows, status.problem) == (100, "")
    finally:
        await broker.close()
    reader = SqlCatalog("millstream", **{"uri": catalog, "s3.endpoint": endpoint, "s3.region": "us-east-1"})
    found = reader.load_table(("DefaultCluster", "t")).scan().to_duckdb("t")
    assert found.sql("SELECT count(*), count(DISTINCT id), sum(id) FROM t").fetchall() == [(100, 100, 4950)]
    reader.close()
