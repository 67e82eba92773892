"""A broker refuses, before it changes a topic, the columns that the topic's copy would refuse later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

from column_bench import COLUMNS, CopyBench

from millstream.broker import cold_tier, column_copies
from millstream.model.errors import MillstreamError
from millstream.model.topic import ColumnAttributes, TopicConfig, copy_attributes
from millstream.server.columns.column_changes import MESSAGE_COLUMN_NAMES, check_declared
from millstream.server.columns.declaration import MESSAGE_COLUMNS


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(cold_tier, "UPLOAD_INTERVAL_S", 1e6)
    monkeypatch.setattr(column_copies, "COPY_INTERVAL_S", 1e6)
    made = CopyBench(tmp_path)
    made.check_columns = check_declared
    await made.open()
    await made.send(4)
    await made.upload()
    await made.copy()
    yield made
    await made.close()


def declare(bench: CopyBench, columns: str, name: str = "t") -> None:
    topic = bench.broker.topics.find(name) or TopicConfig(name)
    attributes = copy_attributes(ColumnAttributes(columns, "json"))
    bench.broker.topics.update(replace(topic, attributes={**topic.attributes, **attributes}))


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("id BIGINT, name STRING", "the column price is left out"),
        ("id STRING, name STRING, price DECIMAL(10, 2)", "the column id was BIGINT and is STRING now"),
        (f"{COLUMNS}, x NOTYPE", "NOTYPE"),
        (f"{COLUMNS}, ID INT", "two columns are called 'id'"),
        (f"{COLUMNS}, _Body STRING", "'_body' is a column of every copy"),
    ],
)
async def test_columns_that_the_files_do_not_fit_change_nothing(bench: CopyBench, columns: str, why: str) -> None:
    before = bench.broker.topics.get("t")
    with pytest.raises(MillstreamError) as refused:
        declare(bench, columns)
    assert refused.value.name == "COLUMNS_REFUSED"
    assert why in str(refused.value)
    assert bench.broker.topics.get("t") == before


async def test_columns_that_fit_are_taken_and_so_are_other_settings(bench: CopyBench) -> None:
    declare(bench, f"{COLUMNS}, city STRING")
    bench.broker.topics.update(replace(bench.broker.topics.get("t"), read_queues=8, write_queues=8))
    await bench.copy()
    assert bench.broker.columns.status()[0].columns == f"{COLUMNS}, city STRING"


async def test_a_topic_with_columns_that_cannot_be_is_not_made(bench: CopyBench) -> None:
    with pytest.raises(MillstreamError, match="NOTYPE"):
        declare(bench, "id NOTYPE", "new")
    assert bench.broker.topics.find("new") is None


async def test_columns_may_change_at_will_before_the_copy_takes_them_and_when_the_topic_is_made_anew(
    bench: CopyBench,
) -> None:
    declare(bench, "id BIGINT", "new")
    declare(bench, "id STRING", "new")
    bench.broker.topics.delete("t")
    declare(bench, "id STRING")


async def test_other_settings_of_a_topic_change_that_declares_what_an_older_broker_took(bench: CopyBench) -> None:
    bench.broker.columns._check_columns = None
    declare(bench, "id STRING")
    bench.broker.columns._check_columns = check_declared
    bench.broker.topics.update(replace(bench.broker.topics.get("t"), read_queues=8, write_queues=8))
    assert bench.broker.topics.get("t").read_queues == 8


def test_the_columns_of_every_copy_are_those_of_its_files() -> None:
    assert tuple(MESSAGE_COLUMNS.names) == MESSAGE_COLUMN_NAMES
