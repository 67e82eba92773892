"""The kit for authors finds what breaks the contract, and the example keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from example_package import installed
from millstream.streams.connectors import kit
from millstream.streams.connectors.connector import Connector
from millstream.streams.connectors.kit import ContractBroken
from millstream.streams.connectors.options import text
from millstream.streams.connectors.protocols import Offsets, SinkBatch, SinkTask, SourcePartition
from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.plan.types import BIGINT, STRING

COLUMNS = {"id": BIGINT, "word": STRING}
ROWS = [{"id": number, "word": f"w{number}"} for number in range(7)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Connector]:
    with installed(tmp_path / "installed"):
        yield CONNECTORS["folder"]


def lines_in(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(directory.glob("*.jsonl")) for line in file.read_text().splitlines()]


def test_the_example_keeps_the_contract(folder: Connector, tmp_path: Path) -> None:
    data = tmp_path / "data"
    table = kit.table_of(folder, COLUMNS, {"path": str(data), "lines-per-task": "2"})
    kit.check_declaration(folder)
    kit.check_sink(folder, table, pa.RecordBatch.from_pylist(ROWS), lambda: lines_in(data), ROWS)
    kit.check_source(folder, table, ROWS)


def test_an_option_that_is_not_declared_is_found(folder: Connector) -> None:
    with pytest.raises(ContractBroken, match="declares no option 'depth'"):
        kit.table_of(folder, COLUMNS, {"path": "/x", "depth": "1"})


class Drifting:
    """A source that gives other rows each time, and a sink that adds at each commit."""

    kept: list[dict[str, Any]] = []  # noqa: RUF012 - what the sink's one target holds
    reads = 0

    def __init__(self, table: ConnectedTable) -> None:
        self.table = table

    def first(self) -> Offsets:
        return {}

    def latest(self) -> Offsets:
        return {"q": 1}

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[SourcePartition]:
        return [SourcePartition("q", start.get("q", 0), end["q"])]

    def read(self, partition: SourcePartition) -> Iterator[pa.RecordBatch]:
        Drifting.reads += 1
        yield pa.RecordBatch.from_pylist([{"id": Drifting.reads, "word": "w"}])

    def writer(self, task: SinkTask) -> Drifting:
        return self

    def write(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> None:
        self.rows = rows.to_pylist()

    def finish(self) -> bytes:
        return json.dumps(self.rows).encode()

    def commit(self, batch: SinkBatch, messages: Sequence[bytes]) -> None:
        for message in messages:
            Drifting.kept += json.loads(message)


DRIFTING = Connector(
    "drifting", (), reads=True, writes=True, source=f"{__name__}:Drifting", sink=f"{__name__}:Drifting"
)


def test_a_source_that_gives_other_rows_when_it_is_asked_again_is_found() -> None:
    with pytest.raises(ContractBroken, match="other rows where it is read again"):
        kit.check_source(DRIFTING, kit.table_of(DRIFTING, COLUMNS, {}), [{"id": 1, "word": "w"}])


def test_a_sink_that_adds_rows_at_a_second_commit_is_found() -> None:
    table = kit.table_of(DRIFTING, COLUMNS, {})
    with pytest.raises(ContractBroken, match="after a second commit the table has 14 rows"):
        kit.check_sink(DRIFTING, table, pa.RecordBatch.from_pylist(ROWS), lambda: list(Drifting.kept), ROWS)


def test_an_option_without_words_or_with_an_illegal_default_is_found() -> None:
    silent = Connector("silent", (text("a", ""),), reads=True, source="m:S")
    with pytest.raises(ContractBroken, match="'a' is described by no sentence"):
        kit.check_declaration(silent)
    odd = Connector("odd", (text("a", "A.", pattern="x", default="y"),), reads=True, source="m:S")
    with pytest.raises(ContractBroken, match="default of 'a' is not legal"):
        kit.check_declaration(odd)
