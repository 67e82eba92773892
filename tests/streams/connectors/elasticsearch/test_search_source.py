"""The source of a search engine against a server that keeps its documented contract, as no real one can be installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from http_servers import Asked, HttpServer, SearchEngine, Told, serving
from millstream.client.blocking import BlockingClient
from millstream.model.errors import Unreachable
from millstream.streams.connectors import kit
from millstream.streams.connectors.elasticsearch.source import SearchSource
from millstream.streams.connectors.protocols import SourcePartition
from millstream.streams.connectors.registry import CONNECTORS
from millstream.streams.connectors.table import ConnectedColumn, ConnectedTable
from millstream.streams.errors import JobError
from millstream.streams.plan.types import BIGINT, STRING
from servers import running_servers_in_thread

SEARCH = CONNECTORS["elasticsearch"]
WORDS = [{"id": number, "word": f"w{number % 2}"} for number in range(7)]
FIRST = SourcePartition("slice/0", 0, 1)


def engine(documents: list[dict[str, Any]]) -> SearchEngine:
    held = SearchEngine()
    held.indices["words"] = {f"d{place}": document for place, document in enumerate(documents)}
    return held


def table(server: HttpServer, nameserver: str = "", **options: str) -> ConnectedTable:
    named = {name.replace("__", "-").replace("_", "."): value for name, value in options.items()}
    named = {
        "hosts": server.address,
        "index": "words",
        "scan.fetch-size": "2",
        "sink.bulk-flush.backoff.delay": "0",
        **named,
    }
    return kit.table_of(SEARCH, {"id": BIGINT, "word": STRING}, named, name="found", nameserver=nameserver)


def read(of: ConnectedTable) -> list[dict[str, Any]]:
    return [row for batch in SearchSource(of).read(FIRST) for row in batch.to_pylist()]


@pytest.mark.parametrize("slices", ["1", "3"])
def test_the_connector_keeps_the_contract_of_a_source(slices: str) -> None:
    held = engine([{**word, "more": [1]} for word in WORDS])
    with serving(held.reply) as server:
        kit.check_source(SEARCH, table(server, scan_slices=slices), WORDS)
    assert held.scrolls == {}


def test_requests_are_what_the_reference_of_the_scroll_interface_describes() -> None:
    held = engine(WORDS[:3])
    with serving(held.reply) as server:
        read(table(server, scan_keep__alive="90 s", api__key="k"))
    assert [(asked.method, asked.path) for asked in server.requests] == [
        ("POST", "/words/_search?scroll=90s"),
        ("POST", "/_search/scroll"),
        ("POST", "/_search/scroll"),
        ("DELETE", "/_search/scroll"),
    ]
    assert [asked.body for asked in server.requests] == [
        b'{"size":2,"sort":["_doc"],"query":{"match_all":{}},"_source":["id","word"]}',
        b'{"scroll":"90s","scroll_id":"scroll-1"}',
        b'{"scroll":"90s","scroll_id":"scroll-1"}',
        b'{"scroll_id":["scroll-1"]}',
    ]
    assert {asked.headers["authorization"] for asked in server.requests} == {"ApiKey k"}


def test_only_documents_that_fit_the_query_are_read() -> None:
    with serving(engine(WORDS).reply) as server:
        found = read(table(server, query='{"term": {"word": "w1"}}'))
    assert [row["id"] for row in found] == [1, 3, 5]


def test_ids_and_indices_are_metadata() -> None:
    with serving(engine(WORDS[:2]).reply) as server:
        options = table(server).options
        columns = (
            ConnectedColumn("key", STRING, "id"),
            ConnectedColumn("id", BIGINT),
            ConnectedColumn("at", STRING, "index"),
        )
        found = read(ConnectedTable("found", columns, options))
    assert found == [{"key": "d0", "id": 0, "at": "words"}, {"key": "d1", "id": 1, "at": "words"}]


def test_a_busy_server_is_asked_again_for_the_first_page_and_a_lost_page_fails_the_attempt() -> None:
    held = engine(WORDS)
    left = [Told(429), None, Told(503)]

    def reply(asked: Asked) -> Told:
        said = left.pop(0) if left else None
        return held.reply(asked) if said is None else said

    with serving(reply) as server, pytest.raises(Unreachable, match="found is not served: status 503"):
        read(table(server))
    assert [asked.path.partition("?")[0] for asked in server.requests] == [
        "/words/_search", "/words/_search", "/_search/scroll", "/_search/scroll",
    ]  # fmt: skip


def test_an_answer_of_some_shards_only_is_none() -> None:
    page = {"_scroll_id": "s", "timed_out": False, "_shards": {"failed": 1}, "hits": {"hits": []}}
    told = Told(200, json.dumps(page).encode())
    with serving(lambda _: told) as server, pytest.raises(Unreachable, match="part of found answered: 1 shards failed"):
        read(table(server))


def test_what_the_server_refuses_ends_the_job_with_its_words() -> None:
    told = Told(404, b'{"error":{"type":"index_not_found_exception"}}')
    with serving(lambda _: told) as server, pytest.raises(JobError, match=r"cannot be read: status 404.*not_found"):
        read(table(server))


def test_documents_that_do_not_fit_end_the_job_or_are_passed_over_or_set_aside(tmp_path: Path) -> None:
    held = engine([WORDS[0], {"id": "many", "word": "w"}, WORDS[2]])
    with serving(held.reply) as server, running_servers_in_thread(tmp_path) as running:
        with pytest.raises(
            JobError, match="The document d1 of the index words does not fit found: id: 'many' is no integer"
        ):
            read(table(server))
        assert [row["id"] for row in read(table(server, json_ignore__parse__errors="true"))] == [0, 2]
        to = table(server, running.nameserver, sink_dead__letter_topic="odd")
        assert [row["id"] for row in read(to)] == [0, 2]
        with BlockingClient(running.nameserver) as client:
            bodies = [
                message.body
                for item in client.queue_ranges("odd")
                for batch in client.read(item.queue, 0, item.range.max_offset)
                for message in batch.messages()
            ]
    assert [json.loads(body) for body in bodies] == [{"id": "many", "word": "w"}]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"index": "logs-{ts|yyyy}"}, "can only be written"), ({"query": "{1}"}, "is no JSON")],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused_at_once(options: dict[str, str], said: str) -> None:
    with serving(lambda _: Told()) as server, pytest.raises(JobError, match=said):
        SearchSource(table(server, **options))
