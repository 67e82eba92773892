"""Rows that change, as topics take them: formats of changes, keys, the last row of a key, and repeated attempts."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

import pyarrow as pa

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message, StoredMessage
from millstream.model.topic import TopicConfig
from millstream.streams.connectors.filesystem.part_files import FileLayout
from millstream.streams.connectors.filesystem.sink import FileSink
from millstream.streams.connectors.rocketmq.sink import TopicSink, UpsertSink
from millstream.streams.errors import JobError
from millstream.streams.plan.tables import MetadataColumn, PhysicalColumn, Table
from millstream.streams.plan.types import BIGINT, BOOLEAN, INT, STRING, DataType, TypeKind
from millstream.streams.spark.sinks.earlier import BatchNote
from millstream.streams.spark.sinks.message_maker import ORIGIN, MessageMaker
from millstream.streams.spark.sinks.sink import Attempt, Sink, SinkTask, Written
from servers import Servers, running_servers_in_thread

INSERT, BEFORE, AFTER, DELETE = range(4)
KINDS = [INSERT, BEFORE, AFTER, DELETE]
MOMENT = DataType(TypeKind.TIMESTAMP, precision=3)


def table_of(options: dict[str, str], key: tuple[str, ...] = (), **columns: DataType) -> Table:
    physical = tuple(PhysicalColumn(name, kind) for name, kind in (columns or {"id": INT, "w": STRING}).items())
    return Table(
        "o",
        physical,
        {"connector": "rocketmq", "topic": "o", **options},
        primary_key=key,
        upserts="connector" in options,
    )


def rows_of(*rows: tuple[int, str | None]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array([row[0] for row in rows], pa.int32()), pa.array([row[1] for row in rows], pa.string())], ["id", "w"]
    )


FOUR = rows_of((1, "a"), (1, "a"), (1, "b"), (1, "b"))


@pytest.mark.parametrize(
    ("name", "bodies"),
    [
        (
            "debezium-json",
            [
                '{"before":null,"after":{"id":1,"w":"a"},"op":"c"}',
                '{"before":{"id":1,"w":"a"},"after":null,"op":"d"}',
                '{"before":null,"after":{"id":1,"w":"b"},"op":"c"}',
                '{"before":{"id":1,"w":"b"},"after":null,"op":"d"}',
            ],
        ),
        (
            "canal-json",
            [
                '{"data":[{"id":1,"w":"a"}],"type":"INSERT"}',
                '{"data":[{"id":1,"w":"a"}],"type":"DELETE"}',
                '{"data":[{"id":1,"w":"b"}],"type":"INSERT"}',
                '{"data":[{"id":1,"w":"b"}],"type":"DELETE"}',
            ],
        ),
        (
            "maxwell-json",
            [
                '{"data":{"id":1,"w":"a"},"type":"insert"}',
                '{"data":{"id":1,"w":"a"},"type":"delete"}',
                '{"data":{"id":1,"w":"b"},"type":"insert"}',
                '{"data":{"id":1,"w":"b"},"type":"delete"}',
            ],
        ),
        (
            "changelog-json",
            [
                '{"op":"+I","data":{"id":1,"w":"a"}}',
                '{"op":"-U","data":{"id":1,"w":"a"}}',
                '{"op":"+U","data":{"id":1,"w":"b"}}',
                '{"op":"-D","data":{"id":1,"w":"b"}}',
            ],
        ),
    ],
)
def test_a_change_is_written_as_its_format_says(name: str, bodies: list[str]) -> None:
    maker = MessageMaker.of(table_of({"format": name}))
    assert [message.body.decode() for message in maker.messages(FOUR, KINDS)] == bodies


def test_csv_is_quoted_where_it_must_be() -> None:
    numbers = DataType(TypeKind.ARRAY, elements=(INT,))
    table = table_of({"format": "csv", "csv.null-literal": "n/a"}, w=STRING, ok=BOOLEAN, n=numbers, at=MOMENT)
    rows = pa.record_batch(
        [
            pa.array(['a,"b"', None]),
            pa.array([True, None]),
            pa.array([[1, 2], None], pa.list_(pa.int32())),
            pa.array([1_000_000, None], pa.timestamp("us", "UTC")),
        ],
        ["w", "ok", "n", "at"],
    )
    bodies = [message.body.decode() for message in MessageMaker.of(table).messages(rows)]
    assert bodies == ['"a,""b""",true,1;2,1970-01-01 00:00:01', "n/a,n/a,n/a,n/a"]


def test_a_raw_number_is_binary() -> None:
    rows = pa.record_batch([pa.array([258], pa.int64())], ["n"])
    (message,) = MessageMaker.of(table_of({"format": "raw"}, n=BIGINT)).messages(rows)
    assert message.body == b"\x00\x00\x00\x00\x00\x00\x01\x02"


def test_times_are_written_with_a_t_where_iso_is_asked_for() -> None:
    rows = pa.record_batch([pa.array([1_000_000], pa.timestamp("us", "UTC"))], ["at"])
    maker = MessageMaker.of(table_of({"json.timestamp-format.standard": "ISO-8601"}, at=MOMENT))
    assert [message.body for message in maker.messages(rows)] == [b'{"at":"1970-01-01T00:00:01"}']


def test_columns_of_the_key_stand_in_the_key_alone_and_spaces_part_no_keys() -> None:
    options = {"key.format": "json", "key.fields": "w", "value.fields-include": "EXCEPT_KEY"}
    (message,) = MessageMaker.of(table_of(options)).messages(rows_of((1, "a b")))
    assert (message.body, message.keys) == (b'{"id":1}', ('{"w":"a\\u0020b"}',))
    assert json.loads(message.keys[0]) == {"w": "a b"}


def test_columns_beside_the_body_are_tag_and_properties_of_the_message() -> None:
    pairs = DataType(TypeKind.MAP, elements=(STRING, STRING))
    beside = (MetadataColumn("t", STRING, "tag"), MetadataColumn("p", pairs, "properties"))
    table = Table("o", (PhysicalColumn("id", INT), *beside), {"connector": "rocketmq", "topic": "o", "format": "json"})
    properties = pa.array([[("mqtt_topic", "alerts/7"), ("none", None)], None], pa.map_(pa.utf8(), pa.utf8()))
    rows = pa.record_batch([pa.array([1, 2], pa.int32()), pa.array(["hot", None]), properties], ["id", "t", "p"])
    first, second = MessageMaker.of(table).messages(rows)
    assert (first.body, first.tag, first.user_properties) == (b'{"id":1}', "hot", {"mqtt_topic": "alerts/7"})
    assert (second.body, second.tag, second.user_properties) == (b'{"id":2}', None, {})


@pytest.mark.parametrize(
    "option", [{"sink.key-column": "w"}, {"key.format": "raw", "key.fields": "w"}], ids=["key column", "key fields"]
)
def test_a_key_that_is_set_twice_is_refused(option: dict[str, str]) -> None:
    table = table_of(option)
    table = replace(table, columns=(*table.columns, MetadataColumn("k", STRING, "keys")))
    with pytest.raises(JobError, match=f"by '{next(reversed(option))}' and by the column k") as error:
        MessageMaker.of(table)
    assert error.value.remedy == "Make that column VIRTUAL, or leave the option out."


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with running_servers_in_thread(tmp_path / "data") as running:
        yield running


def stored(servers: Servers) -> list[StoredMessage]:
    with BlockingClient(servers.nameserver) as client:
        return [
            message
            for held in client.queue_ranges("o")
            for batch in client.read(held.queue, 0, held.range.max_offset)
            for message in batch.messages()
        ]


def attempt(sink: Sink, batch_id: int, notes: Path, *parts: tuple[pa.RecordBatch, list[int] | None]) -> bool:
    """One attempt of a micro-batch, in one task."""
    repeated = sink.begin(Attempt("job", batch_id, 0, notes))
    copy: Sink = pickle.loads(pickle.dumps(sink))
    writer = copy.writer(SinkTask("job", batch_id, 0))
    for rows, kinds in parts:
        writer.write(rows, None if kinds is None else pa.array(kinds, pa.int8()))
    writer.finish()
    return repeated


@pytest.mark.parametrize("batches", [False, True], ids=["one-by-one", "bulk"])
def test_a_repeated_attempt_sends_only_what_is_missing(servers: Servers, tmp_path: Path, *, batches: bool) -> None:
    with BlockingClient(servers.nameserver) as client:
        attributes = {"queue.type": "BatchCQ"} if batches else {}
        client.create_topic(TopicConfig("o", read_queues=2, write_queues=2, attributes=attributes))
        client.send(Message("o", b'{"id":1,"w":"a"}'))
    sink = TopicSink("o", MessageMaker.of(table_of({"sink.key-column": "w"})), servers.nameserver, timeout_s=10)
    whole = rows_of((1, "a"), (2, "b"), (1, "a"), (3, None))
    assert not attempt(sink, 7, tmp_path / "notes", (whole.slice(1, 2), None))
    assert attempt(sink, 7, tmp_path / "notes", (whole, None))
    assert not attempt(sink, 8, tmp_path / "notes", (whole.slice(0, 1), None))
    found = sorted(
        (message.user_properties.get(ORIGIN, ""), message.body.decode(), message.keys) for message in stored(servers)
    )
    assert found == [
        ("", '{"id":1,"w":"a"}', ()),
        ("job-0-7/0", '{"id":1,"w":"a"}', ("a",)),
        ("job-0-7/0", '{"id":1,"w":"a"}', ("a",)),
        ("job-0-7/0", '{"id":2,"w":"b"}', ("b",)),
        ("job-0-7/0", '{"id":3,"w":null}', ()),
        ("job-0-8/0", '{"id":1,"w":"a"}', ("a",)),
    ]


def send_from(sink: Sink, task: SinkTask, rows: pa.RecordBatch) -> None:
    """What one task sends; the sink is as it was when it began."""
    copy: Sink = pickle.loads(pickle.dumps(sink))
    writer = copy.writer(task)
    writer.write(rows)
    writer.finish()


@pytest.mark.parametrize("batches", [False, True], ids=["one-by-one", "bulk"])
def test_a_task_that_spark_runs_again_sends_what_it_had_not_sent_though_others_sent_equal_rows(
    servers: Servers, tmp_path: Path, *, batches: bool
) -> None:
    with BlockingClient(servers.nameserver) as client:
        attributes = {"queue.type": "BatchCQ"} if batches else {}
        client.create_topic(TopicConfig("o", read_queues=2, write_queues=2, attributes=attributes))
    sink = TopicSink("o", MessageMaker.of(table_of({})), servers.nameserver, timeout_s=10)
    whole = rows_of((1, "a"), (2, "b"), (3, "c"))
    assert not sink.begin(Attempt("job", 7, 0, tmp_path / "notes"))
    send_from(sink, SinkTask("job", 7, 0), whole.slice(0, 1))
    send_from(sink, SinkTask("job", 7, 1), whole)
    send_from(sink, SinkTask("job", 7, 0, attempt=1), whole)
    bodies = sorted(message.body.decode() for message in stored(servers))
    assert bodies == sorted(2 * ['{"id":1,"w":"a"}', '{"id":2,"w":"b"}', '{"id":3,"w":"c"}'])


def test_a_task_that_is_run_again_in_a_repeated_micro_batch_sends_what_no_attempt_has_sent(
    servers: Servers, tmp_path: Path
) -> None:
    with BlockingClient(servers.nameserver) as client:
        client.create_topic(TopicConfig("o", read_queues=2, write_queues=2))
    sink = TopicSink("o", MessageMaker.of(table_of({})), servers.nameserver, timeout_s=10)
    whole = rows_of((1, "a"), (2, "b"), (3, "c"))
    sink.begin(Attempt("job", 7, 0, tmp_path / "notes"))
    send_from(sink, SinkTask("job", 7, 4), whole.slice(0, 1))
    assert sink.begin(Attempt("job", 7, 0, tmp_path / "notes"))
    send_from(sink, SinkTask("job", 7, 0), whole.slice(0, 2))
    send_from(sink, SinkTask("job", 7, 0, attempt=1), whole)
    assert len(stored(servers)) == 3


def test_a_task_that_outlives_its_attempt_sends_nothing_any_more(servers: Servers, tmp_path: Path) -> None:
    with BlockingClient(servers.nameserver) as client:
        client.create_topic(TopicConfig("o", read_queues=2, write_queues=2))
    sink = TopicSink("o", MessageMaker.of(table_of({})), servers.nameserver, timeout_s=10)
    sink.begin(Attempt("job", 7, 0, tmp_path / "notes"))
    copy: Sink = pickle.loads(pickle.dumps(sink))
    late = copy.writer(SinkTask("job", 7, 1))
    late.write(rows_of((1, "a")))
    assert not sink.begin(Attempt("job", 7, 0, tmp_path / "notes"))
    send_from(sink, SinkTask("job", 7, 0), rows_of((1, "a")))
    with pytest.raises(JobError, match="A later attempt"):
        late.finish()
    assert len(stored(servers)) == 1


def test_an_attempt_begins_when_no_task_of_the_one_before_it_sends(tmp_path: Path) -> None:
    file = tmp_path / "note"
    first, _ = BatchNote.begin(file, 7, dict)
    order: list[str] = []

    def begin() -> None:
        BatchNote.begin(file, 7, dict)
        order.append("begun")

    second = threading.Thread(target=begin)
    with first.hold_right_to_send(file):
        second.start()
        second.join(0.2)
        order.append("sent")
    second.join()
    assert order == ["sent", "begun"]
    with pytest.raises(JobError), first.hold_right_to_send(file):
        pass


@pytest.mark.parametrize(("policy", "gone"), [("DELETE", b"null"), ("COMPACTION", b"")])
def test_a_key_is_written_once_a_micro_batch_and_a_deleted_one_without_a_body(
    servers: Servers, tmp_path: Path, policy: str, gone: bytes
) -> None:
    with BlockingClient(servers.nameserver) as client:
        client.create_topic(TopicConfig("o", read_queues=4, write_queues=4, attributes={"cleanup.policy": policy}))
    table = table_of({"connector": "upsert-rocketmq"}, ("id",))
    sink = UpsertSink("o", MessageMaker.of(table), servers.nameserver, timeout_s=10)
    first = rows_of((1, "a"), (2, "x"), (1, "a"))
    then = rows_of((1, "b"), (2, "x"), (3, "y"))
    attempt(sink, 0, tmp_path / "notes", (first, [INSERT, INSERT, BEFORE]), (then, [AFTER, DELETE, INSERT]))
    attempt(
        sink,
        1,
        tmp_path / "notes",
        (
            rows_of(
                (1, "c"),
            ),
            [AFTER],
        ),
    )
    queues: dict[tuple[str, ...], set[int]] = {}
    bodies: dict[tuple[str, ...], list[bytes]] = {}
    for message in stored(servers):
        queues.setdefault(message.keys, set()).add(message.queue_id)
        bodies.setdefault(message.keys, []).append(message.body)
    assert bodies == {
        ('{"id":1}',): [b'{"id":1,"w":"b"}', b'{"id":1,"w":"c"}'],
        ('{"id":2}',): [gone],
        ('{"id":3}',): [b'{"id":3,"w":"y"}'],
    }
    assert all(len(of) == 1 for of in queues.values())


def test_a_window_that_is_said_again_goes_to_a_topic_of_inserts_without_what_it_takes_back(
    servers: Servers, tmp_path: Path
) -> None:
    with BlockingClient(servers.nameserver) as client:
        client.create_topic(TopicConfig("o", read_queues=1, write_queues=1))
    sink = TopicSink("o", MessageMaker.of(table_of({})), servers.nameserver, timeout_s=10)
    attempt(sink, 0, tmp_path / "notes", (FOUR, KINDS))
    assert [message.body for message in stored(servers)] == [b'{"id":1,"w":"a"}', b'{"id":1,"w":"b"}']


def test_a_window_that_is_said_again_is_in_files_each_time_without_what_it_takes_back(tmp_path: Path) -> None:
    sink = FileSink("f", FileLayout(tmp_path / "out", MessageMaker.of(table_of({})).schema, "json"))
    task = SinkTask("job", 0, 0)
    writer = sink.writer(task)
    writer.write(FOUR, pa.array(KINDS, pa.int8()))
    sink.commit(0, [Written(task, 4, writer.finish())])
    (file,) = (tmp_path / "out").glob("part-*")
    assert file.read_text().splitlines() == ['{"id":1,"w":"a"}', '{"id":1,"w":"b"}']
