"""A broker that copies a cold topic into an Iceberg table, with an object store in memory, and readers of the copy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from crash.faulty_objects import FaultyObjects
from pyiceberg.catalog.sql import SqlCatalog

from inline_columns import InlineWork
from millstream.broker.broker import Broker, BrokerOptions
from millstream.broker.cold_tier import TieredOptions
from millstream.model.clock import ManualClock
from millstream.model.message import OutgoingMessage
from millstream.model.topic import ColumnAttributes, MessageType, TopicConfig, copy_attributes
from millstream.server.columns.orders import Order
from millstream.server.columns.worker import ColumnWorker
from millstream.store.message_store import StoreOptions

SMALL = StoreOptions(segment_bytes=16 * 1024, consume_queue_entries=32, flush_interval_ms=60_000)
TIERED = TieredOptions(roll_s=0.0, stretch_bytes=4 * 1024, keep_hours=1000)
COLUMNS = "id BIGINT, name STRING, price DECIMAL(10, 2)"
BORN_MS = 1_600_000_000_123
CLUSTER, BROKER = "DefaultCluster", "broker-a"


class CopyBench:
    """One broker at a time over `root`; `sent` has what was sent to each queue of `t`, by offset."""

    def __init__(self, root: Path, *, columns: str = COLUMNS, body_format: str = "json", tables: bool = True) -> None:
        self.root, self.clock, self.objects = root, ManualClock(), FaultyObjects()
        self.store = root / "store"
        self.url = f"file://{self.store}"
        self.catalog = f"sqlite:///{root}/tables.db"
        self.tables = tables
        self.hook: Callable[[str, Order], None] = lambda _when, _order: None
        self.name = BROKER
        self.check_columns: Callable[[str, str], None] | None = None
        self.lives = 0
        self.sent: dict[int, list[OutgoingMessage]] = {}
        self.attributes = copy_attributes(ColumnAttributes(columns, body_format))
        self.broker: Broker

    async def open(self) -> None:
        self.broker = Broker(
            self.root / str(self.lives),
            name=self.name,
            options=BrokerOptions(store=SMALL, tiered=TIERED),
            clock=self.clock,
            open_objects=lambda: self.objects,
            make_column_work=self._make_work,
            check_columns=self.check_columns,
        )
        await self.broker.start()
        await self.broker.cold.check_owner()
        if self.broker.topics.find("t") is None:
            self.create()

    def _make_work(self) -> InlineWork:
        catalog = self.catalog if self.tables else ""
        worker = ColumnWorker(lambda: self.objects, self.url, catalog)
        return InlineWork(worker, lambda when, order: self.hook(when, order), tables=self.tables)

    def create(self, **attributes: str) -> None:
        self.broker.topics.create(
            TopicConfig("t", MessageType.NORMAL, 2, 2, attributes={**self.attributes, **attributes})
        )

    async def crash(self) -> None:
        """The next process finds the files as they are, and the object store and the catalogue as they are."""
        before = self.broker.directory
        self.lives += 1
        shutil.copytree(before, self.root / str(self.lives))
        await self.close()
        await self.open()

    async def close(self) -> None:
        self.hook = lambda _when, _order: None
        self.objects.plan.clear()
        await self.broker.close()

    async def send(self, count: int, *, queue_id: int | None = None, **fields: Any) -> None:
        for _ in range(count):
            queue = queue_id if queue_id is not None else sum(map(len, self.sent.values())) % 2
            number = sum(map(len, self.sent.values()))
            body = {"id": number, "name": f"n{number}", "price": f"{number}.50", **fields}
            await self.send_body(json.dumps(body).encode(), queue)

    async def send_body(self, body: bytes, queue_id: int = 0) -> None:
        number = sum(map(len, self.sent.values()))
        properties = {
            "KEYS": f"k{number} all",
            "TAGS": f"tag{number % 3}",
            "UNIQ_KEY": f"{number:032X}",
            "color": "red",
        }
        message = OutgoingMessage("t", body, properties, queue_id=queue_id, born_timestamp_ms=BORN_MS)
        await self.broker.delivery.send([message])
        self.sent.setdefault(queue_id, []).append(message)

    async def upload(self) -> None:
        self.broker.maintenance.store.flush()
        while self.broker.cold.report().behind_bytes:
            await self.broker.cold.upload_due()

    async def copy(self) -> None:
        """Copy and tell tables until nothing is left, waiting where something failed."""
        columns = self.broker.columns
        for _ in range(40):
            self.clock.advance_ms(301_000)
            if not await columns.copy_due() and not columns._untold and not columns._troubles:
                return
        raise AssertionError(f"the copy does not end: {columns.status()}")

    def export(self) -> None:
        """Put the objects into files, for readers that know nothing of ours."""
        shutil.rmtree(self.store, ignore_errors=True)
        for key, data in self.objects.objects.items():
            path = self.store / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def table_files(self) -> list[str]:
        """The data files of the table, as a foreign reader of the catalogue finds them."""
        self.export()
        catalog = SqlCatalog("millstream", uri=self.catalog)
        try:
            table = catalog.load_table((CLUSTER, "t"))
            return [one.file.file_path.removeprefix("file://") for one in table.scan().plan_files()]
        finally:
            catalog.close()

    def query(self, sql: str, files: list[str] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a query of DuckDB over `t`, which is those files: without any those of the table."""
        found = self.table_files() if files is None else files
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            names = ", ".join(f"'{name}'" for name in found)
            connection.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet([{names}], union_by_name = true)")
            return connection.execute(sql).fetchall()

    def places(self) -> list[tuple[int, int]]:
        """Queue and offset of each row, in order."""
        return self.query("SELECT _queue_id, _queue_offset FROM t ORDER BY ALL")

    def wanted_places(self) -> list[tuple[int, int]]:
        return [(queue, offset) for queue in sorted(self.sent) for offset in range(len(self.sent[queue]))]
