"""The sink of a search engine against a server that keeps its documented contract, as no real one can be installed."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dying_writers import killed_before_the_commit
from http_servers import Asked, HttpServer, SearchEngine, Told, serving
from millstream.client.blocking import BlockingClient
from millstream.model.errors import Unreachable
from millstream.streams.connectors import kit
from millstream.streams.connectors.elasticsearch.index_names import IndexNames
from millstream.streams.connectors.elasticsearch.sink import SearchSink
from millstream.streams.connectors.protocols import SinkTask
from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.types import BIGINT, STRING, DataType, Field, Schema, TypeKind
from servers import running_servers_in_thread

SEARCH = CONNECTORS["elasticsearch"]
MOMENT = DataType(TypeKind.TIMESTAMP, precision=3)
TASK = SinkTask("0123456789ab-0", 4, 2)
NEW, BEFORE, AFTER, GONE = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE


def table(
    server: HttpServer, *, key: tuple[str, ...] = ("id",), nameserver: str = "", **options: str
) -> ConnectedTable:
    named = {name.replace("__", "-").replace("_", "."): value for name, value in options.items()}
    named = {"hosts": server.address, "index": "words", "sink.bulk-flush.backoff.delay": "0", **named}
    columns = {"id": BIGINT, "word": STRING}
    return kit.table_of(SEARCH, columns, named, name="out", primary_key=key, nameserver=nameserver)


def rows(*given: tuple[int, str | None]) -> pa.RecordBatch:
    schema = pa.schema([("id", pa.int64()), ("word", pa.string())])
    return pa.RecordBatch.from_pylist([{"id": number, "word": word} for number, word in given], schema=schema)


def written(to: ConnectedTable, batch: pa.RecordBatch, kinds: list[RowKind] | None = None) -> None:
    writer = SearchSink(to).writer(TASK)
    writer.write(batch, None if kinds is None else pa.array([kind.value for kind in kinds], pa.int8()))
    writer.finish()


def test_a_request_is_what_the_reference_of_the_bulk_interface_describes() -> None:
    engine = SearchEngine()
    with serving(engine.reply) as server:
        written(table(server, username="u", password="p"), rows((1, "a"), (2, None)))
    (asked,) = server.requests
    assert (asked.method, asked.path, asked.headers["content-type"]) == ("POST", "/_bulk", "application/x-ndjson")
    assert asked.headers["authorization"] == "Basic dTpw"
    assert asked.body == (
        b'{"index":{"_index":"words","_id":"1"}}\n{"id":1,"word":"a"}\n'
        b'{"index":{"_index":"words","_id":"2"}}\n{"id":2,"word":null}\n'
    )


def test_rows_that_change_replace_their_documents_and_rows_that_are_gone_delete_them() -> None:
    engine = SearchEngine()
    with serving(engine.reply) as server:
        to = table(server)
        written(to, rows((1, "a"), (2, "b"), (3, "c")))
        written(to, rows((1, "a"), (1, "A"), (2, "b"), (9, "never there")), [BEFORE, AFTER, GONE, GONE])
    assert engine.indices == {"words": {"3": {"id": 3, "word": "c"}, "1": {"id": 1, "word": "A"}}}
    assert server.requests[1].body == (
        b'{"index":{"_index":"words","_id":"1"}}\n{"id":1,"word":"A"}\n'
        b'{"delete":{"_index":"words","_id":"2"}}\n{"delete":{"_index":"words","_id":"9"}}\n'
    )


def test_a_row_that_moves_to_another_index_leaves_the_one_before() -> None:
    engine = SearchEngine()
    with serving(engine.reply) as server:
        to = table(server, index="words-{word}")
        written(to, rows((1, "a")))
        written(to, rows((1, "a"), (1, "b")), [BEFORE, AFTER])
    assert engine.indices == {"words-a": {}, "words-b": {"1": {"id": 1, "word": "b"}}}


def test_without_a_key_a_replay_writes_the_same_documents_and_nothing_is_taken_back() -> None:
    engine = SearchEngine()
    with serving(engine.reply) as server:
        to = table(server, key=(), sink_bulk__flush_max__actions="2")
        for _ in range(2):
            written(to, rows((1, "a"), (1, "a"), (2, "b"), (2, "c")), [NEW, NEW, BEFORE, NEW])
    assert list(engine.indices["words"]) == ["0123456789ab-0-4-2-0", "0123456789ab-0-4-2-1", "0123456789ab-0-4-2-3"]
    assert len(server.requests) == 4


def test_several_columns_of_a_key_are_joined_and_keep_their_digits() -> None:
    engine = SearchEngine()
    price = DataType(TypeKind.DECIMAL, precision=20, scale=2)
    with serving(engine.reply) as server:
        options = {"hosts": server.address, "index": "i", "document-id.key-delimiter": "$"}
        to = kit.table_of(SEARCH, {"word": STRING, "price": price}, options, primary_key=("price", "word"))
        value = decimal.Decimal("123456789012345678.90")
        kind = pa.decimal128(20, 2)
        written(to, pa.RecordBatch.from_pydict({"word": ['a"ä'], "price": pa.array([value], kind)}))
    assert list(engine.indices["i"]) == ['123456789012345678.90$a"ä']


def test_a_request_holds_no_more_than_asked_for() -> None:
    engine = SearchEngine()
    with serving(engine.reply) as server:
        written(table(server, sink_bulk__flush_max__actions="2"), rows(*((number, "w") for number in range(5))))
        written(table(server, sink_bulk__flush_max__size="60 b"), rows(*((number, "w") for number in range(3))))
    assert [asked.body.count(b"index") // 2 for asked in server.requests] == [2, 2, 1, 2, 1]


def test_items_that_a_busy_server_refuses_are_sent_again_alone() -> None:
    engine = SearchEngine(busy=frozenset({"1", "3"}))
    with serving(engine.reply) as server:
        written(table(server), rows((1, "a"), (2, "b"), (3, "c")))
    assert [asked.body.count(b"_id") for asked in server.requests] == [3, 2]
    assert sorted(engine.indices["words"]) == ["1", "2", "3"]
    assert sorted(name for _, name in engine.writes) == ["1", "2", "3"]


def test_a_server_that_stays_busy_is_an_error_that_passes() -> None:
    item = b'{"errors":true,"items":[{"index":{"status":429,"error":{"type":"es_rejected_execution_exception","reason":"full"}}}]}'
    with serving(lambda _: Told(200, item)) as server:
        with pytest.raises(
            Unreachable, match="1 documents are refused, status 429, es_rejected_execution_exception: full"
        ):
            written(table(server, sink_bulk__flush_backoff_max__retries="2"), rows((1, "a")))
        assert len(server.requests) == 3
        with pytest.raises(Unreachable):
            written(table(server, sink_bulk__flush_backoff_strategy="DISABLED"), rows((1, "a")))
    assert len(server.requests) == 4


def test_a_conflict_of_the_mapping_ends_the_job_with_the_servers_reason() -> None:
    engine = SearchEngine(numbers=frozenset({"word"}))
    with serving(engine.reply) as server:
        said = r"index words, id 1: status 400, mapper_parsing_exception: failed to parse field \[word\] of type \[long\] \(For input string"
        with pytest.raises(JobError, match=said) as caught:
            written(table(server), rows((1, "a")))
        assert caught.value.name == "SINK_FAILED"
        written(table(server, failure__handler="ignore"), rows((1, "a"), (2, None)))
    assert list(engine.indices["words"]) == ["2"]


def test_documents_that_are_refused_go_to_the_topic_and_the_others_are_written(tmp_path: Path) -> None:
    engine = SearchEngine(numbers=frozenset({"word"}))
    with serving(engine.reply) as server, running_servers_in_thread(tmp_path) as running:
        to = table(server, nameserver=running.nameserver, sink_dead__letter_topic="refused")
        written(to, rows((1, "a"), (2, None)))
        with BlockingClient(running.nameserver) as client:
            held = [
                message
                for item in client.queue_ranges("refused")
                for batch in client.read(item.queue, 0, item.range.max_offset)
                for message in batch.messages()
            ]
    assert [message.body for message in held] == [b'{"id":1,"word":"a"}']
    assert "mapper_parsing_exception" in held[0].user_properties["reason"]
    assert list(engine.indices["words"]) == ["2"]


def test_a_request_that_is_too_large_is_sent_in_halves() -> None:
    engine = SearchEngine()

    def reply(asked: Asked) -> Told:
        return (
            Told(413, b"too large") if asked.body.count(b"_id") > 1 or b"giant" in asked.body else engine.reply(asked)
        )

    with serving(reply) as server, pytest.raises(JobError, match="refuses 1 rows: status 413, 'too large'"):
        written(table(server), rows((1, "a"), (2, "b"), (3, "giant")))
    assert sorted(engine.indices["words"]) == ["1", "2"]


def test_a_request_that_is_refused_as_a_whole_ends_the_job_and_sets_nothing_aside() -> None:
    with serving(lambda _: Told(401, b"unable to authenticate")) as server:
        to = table(server, failure__handler="ignore")
        with pytest.raises(JobError, match="out is refused: status 401, 'unable to authenticate'"):
            written(to, rows((1, "a")))


def test_a_server_of_another_kind_is_named_as_such() -> None:
    with (
        serving(lambda _: Told(200, b"<html>hello")) as server,
        pytest.raises(JobError, match=r"not answer as a search engine.*hello"),
    ):
        written(table(server), rows((1, "a")))


@pytest.mark.kill
def test_a_process_that_was_killed_doubles_nothing() -> None:
    engine = SearchEngine()
    with serving(engine.reply) as server:
        for key in (("id",), ()):
            to = table(server, key=key, index=f"words-{len(key)}")
            killed_before_the_commit("elasticsearch", to, rows((1, "a"), (2, "b")))
            writer = SearchSink(to).writer(SinkTask("job-0", 4, 0))
            writer.write(rows((1, "a"), (2, "b")))
            writer.finish()
    assert {name: len(held) for name, held in engine.indices.items()} == {"words-0": 2, "words-1": 2}
    assert len(engine.writes) == 8


def test_the_connector_keeps_the_contract_of_a_sink() -> None:
    engine = SearchEngine()
    kit.check_declaration(SEARCH)
    with serving(engine.reply) as server:
        batch = rows((1, "a"), (2, "b"))
        kit.check_sink(SEARCH, table(server), batch, engine.documents, batch.to_pylist())
        kit.check_sink(
            SEARCH, table(server, key=(), index="other"), batch, lambda: engine.documents()[:-2], batch.to_pylist()
        )


SCHEMA = Schema((Field("ts", MOMENT), Field("day", DataType(TypeKind.DATE)), Field("word", STRING)))
NOON = datetime.datetime(2026, 3, 4, 12, 5, 6, 789_000, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("logs", "logs"),
        ("logs-{ts|yyyy-MM-dd}", "logs-2026-03-04"),
        ("logs-{ts|yyyy.MM.dd_HH-mm-ss.SSS}-x", "logs-2026.03.04_12-05-06.789-x"),
        ("{day|yyMM}", "2512"),
        ("logs-{word}-{day}", "logs-w-2025-12-31"),
        ("logs-{now()|yyyy}", "logs-2030"),
        ("{ts|'at'HH}", "at12"),
    ],
)  # fmt: skip
def test_an_index_is_named_by_columns_and_the_clock(pattern: str, name: str) -> None:
    names = IndexNames(pattern, SCHEMA, lambda: datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC))
    given: dict[str, Any] = {"ts": [NOON], "day": [datetime.date(2025, 12, 31)], "word": ["w"]}
    assert names.of(pa.RecordBatch.from_pydict(given)) == [name]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("logs-{tz|yyyy}", "column 'tz', which the table has not"),
        ("logs-{word|yyyy}", "as a date, but it is STRING"),
        ("logs-{ts|YYYY}", "'YYYY' is no pattern of a date"),
        ("Logs", "capital letters"),
    ],
)  # fmt: skip
def test_an_index_that_cannot_be_named_so_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(JobError, match=said):
        IndexNames(pattern, SCHEMA, lambda: NOON)


def test_a_pattern_of_indices_is_not_written() -> None:
    with serving(lambda _: Told()) as server, pytest.raises(JobError, match="a pattern, which can only be read"):
        SearchSink(table(server, index="logs-*"))
