"""The HTTP sink: what it sends, byte by byte, and what becomes of rows that are refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from dying_writers import killed_before_the_commit
from http_servers import Asked, HttpServer, Told, serving
from millstream.client.blocking import BlockingClient
from millstream.model.errors import Unreachable
from millstream.streams.connectors import kit
from millstream.streams.connectors.http.caller import HttpCaller
from millstream.streams.connectors.http.sink import HttpSink
from millstream.streams.connectors.protocols import SinkBatch, SinkTask
from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.connectors.table import ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.types import BIGINT, STRING
from servers import running_servers_in_thread

HTTP = CONNECTORS["http"]
TASK = SinkTask("0123456789ab-1", 4, 2)


def table(server: HttpServer, nameserver: str = "", **options: str) -> ConnectedTable:
    named = {name.replace("__", "-").replace("_", "."): value for name, value in options.items()}
    named = {"url": f"{server.address}/rows?to=x", "sink.retry.delay": "0", **named}
    return kit.table_of(HTTP, {"id": BIGINT, "word": STRING}, named, name="out", nameserver=nameserver)


def rows(*words: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(range(len(words)), pa.int64()), "word": list(words)})


def sent(to: ConnectedTable, *batches: pa.RecordBatch, kinds: list[int] | None = None) -> None:
    sink = HttpSink(to)
    writer = sink.writer(TASK)
    for batch in batches:
        writer.write(batch, None if kinds is None else pa.array(kinds, pa.int8()))
    sink.commit(SinkBatch(TASK.job_id, TASK.batch_id), [writer.finish()])


def bodies(server: HttpServer) -> list[bytes]:
    return [asked.body for asked in server.requests]


def test_each_row_is_a_request_with_a_key_of_its_own() -> None:
    with serving(lambda _: Told(204, b"")) as server:
        sent(table(server, header_X__Team="blue", token="t0p"), rows("a", "b"))
    assert bodies(server) == [b'{"id":0,"word":"a"}', b'{"id":1,"word":"b"}']
    first = server.requests[0]
    assert (first.method, first.path) == ("POST", "/rows?to=x")
    wanted = {
        "content-type": "application/json",
        "x-team": "blue",
        "authorization": "Bearer t0p",
        "idempotency-key": "0123456789ab-1-4-2-0",
    }
    assert wanted.items() <= first.headers.items()
    assert server.requests[1].headers["idempotency-key"] == "0123456789ab-1-4-2-1"


@pytest.mark.parametrize(
    ("body", "kind", "whole", "last"),
    [
        ("array", "application/json", b'[{"id":0,"word":"a"},{"id":1,"word":"b"}]', b'[{"id":0,"word":"c"}]'),
        ("lines", "application/x-ndjson", b'{"id":0,"word":"a"}\n{"id":1,"word":"b"}\n', b'{"id":0,"word":"c"}\n'),
    ],
)
def test_many_rows_are_one_request_however_they_come(body: str, kind: str, whole: bytes, last: bytes) -> None:
    with serving(lambda _: Told()) as server:
        to = table(server, body=body, method="PUT", sink_request_max__rows="2")
        sent(to, rows("a", "b"), rows("c"))
        batch = rows("a", "b")
        sent(to, batch.slice(0, 1), batch.slice(1, 1), rows("c"))
    assert bodies(server) == [whole, last] * 2
    assert [asked.headers["idempotency-key"][-1] for asked in server.requests] == ["0", "1", "0", "1"]
    assert {(asked.method, asked.headers["content-type"]) for asked in server.requests} == {("PUT", kind)}


def test_a_request_is_not_larger_than_asked_for() -> None:
    with serving(lambda _: Told()) as server:
        sent(table(server, body="lines", sink_request_max__size="45 b"), rows("a", "b", "c", "d" * 50, "e"))
    assert [body.count(b"\n") for body in bodies(server)] == [2, 1, 1, 1]


def test_rows_that_are_taken_back_are_not_sent() -> None:
    with serving(lambda _: Told()) as server:
        sent(table(server), rows("a", "b", "c"), kinds=[0, 1, 2])
    assert bodies(server) == [b'{"id":0,"word":"a"}', b'{"id":2,"word":"c"}']


def test_a_name_and_its_password_are_sent_as_the_standard_says() -> None:
    with serving(lambda _: Told()) as server:
        sent(table(server, username="Aladdin", password="open sesame"), rows("a"))
    # The example of RFC 7617.
    assert server.requests[0].headers["authorization"] == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="


def test_a_refusal_ends_the_job_with_the_servers_words() -> None:
    with (
        serving(lambda _: Told(422, b"word is   too\n long" + b"." * 300)) as server,
        pytest.raises(
            JobError, match=r"The sink out refuses 1 rows: status 422, 'word is too long\.{184}\.\.\.'\."
        ) as caught,
    ):
        sent(table(server), rows("a"))
    assert caught.value.name == "SINK_FAILED"
    assert len(server.requests) == 1


def test_a_server_that_stays_busy_is_an_error_that_passes() -> None:
    with serving(lambda _: Told(503)) as server, pytest.raises(Unreachable, match="status 503"):
        sent(table(server, sink_max__retries="2"), rows("a"))
    assert len(server.requests) == 3
    assert len({asked.headers["idempotency-key"] for asked in server.requests}) == 1


def test_rows_that_are_refused_go_to_the_topic_with_the_reason(tmp_path: Path) -> None:
    def reply(asked: Asked) -> Told:
        return Told(400, b"bad word") if b'"b"' in asked.body else Told()

    with serving(reply) as server, running_servers_in_thread(tmp_path) as running:
        to = table(server, running.nameserver, sink_dead__letter_topic="refused")
        sent(to, rows("a", "b", "c"))
        with BlockingClient(running.nameserver) as client:
            held = [
                message
                for item in client.queue_ranges("refused")
                for batch in client.read(item.queue, 0, item.range.max_offset)
                for message in batch.messages()
            ]
    assert [message.body for message in held] == [b'{"id":1,"word":"b"}']
    assert held[0].user_properties == {"reason": "status 400, 'bad word'.", "sink_table": "out"}
    assert len(server.requests) == 3


def test_two_ways_of_saying_who_sends_are_refused() -> None:
    with serving(lambda _: Told()) as server, pytest.raises(JobError, match="in two ways who sends"):
        HttpSink(table(server, token="a", username="b"))


def test_the_declaration_keeps_the_contract_and_a_replay_repeats_the_keys() -> None:
    taken: dict[str, bytes] = {}

    def reply(asked: Asked) -> Told:
        taken[asked.headers["idempotency-key"]] = asked.body
        return Told()

    def read() -> list[dict[str, object]]:
        return [pa.json.read_json(pa.py_buffer(body)).to_pylist()[0] for body in taken.values()]

    import pyarrow.json  # noqa: F401 - makes pa.json

    kit.check_declaration(HTTP)
    with serving(reply) as server:
        batch = rows("a", "b")
        # A server that keeps the keys takes each row once.
        kit.check_sink(HTTP, table(server), batch, read, batch.to_pylist())
    assert Counter(asked.headers["idempotency-key"] for asked in server.requests).most_common(1)[0][1] == 2


@pytest.mark.kill
def test_rows_of_a_process_that_was_killed_come_again_under_their_keys() -> None:
    with serving(lambda _: Told()) as server:
        to = table(server, body="array")
        killed_before_the_commit("http", to, rows("a", "b"))
        writer = HttpSink(to, HttpCaller).writer(SinkTask("job-0", 4, 0))
        writer.write(rows("a", "b"))
        writer.finish()
    assert bodies(server) == [b'[{"id":0,"word":"a"},{"id":1,"word":"b"}]'] * 2
    assert {asked.headers["idempotency-key"] for asked in server.requests} == {"job-0-4-0-0"}
