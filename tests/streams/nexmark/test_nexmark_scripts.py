"""All of Nexmark's SQL is read, bound and explained: ours, and the published texts where a copy of them is at hand."""

from __future__ import annotations

import pytest
from benchmarks.nexmark.scripts import CEP, QUERIES, query_text, tables_text
from nexmark_events import variables
from nexmark_published import FILES, found_files, needs_published, published_query, published_text

from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sql.catalog.listing import TextResult
from millstream.streams.sql.session.compiler import SqlSession
from millstream.streams.sql.shell.explain import explain_node

VALUES = {
    **variables(),
    "OUTPUT": "/tmp/bids",
    "SIDE_INPUT": "/tmp/words.csv",
    "TPS": "1000",
    "EVENTS_NUM": "1000",
    "PERSON_PROPORTION": "1",
    "AUCTION_PROPORTION": "3",
    "BID_PROPORTION": "46",
    "KEEP_ALIVE": "false",
    "STOP_AT": "-1",
    "NEXMARK_DIR": "/tmp",
    "SUBMIT_TIME": "now",
    "FLINK_HOME": "/tmp",
    "BOOTSTRAP_SERVERS": "127.0.0.1:9",
}


def explained(script: str, events: str = "events") -> list[str]:
    session = SqlSession(nameserver="127.0.0.1:9", variables={**VALUES, "NEXMARK_TABLE": events})
    plan = session.compile(script)[-1]
    assert isinstance(plan, JobPlan)
    return explain_node(plan.sinks[0].input)


@pytest.mark.parametrize("name", QUERIES + CEP)
@pytest.mark.parametrize("events", ["made", "topic"])
def test_each_query_is_read_bound_and_explained(events: str, name: str) -> None:
    lines = explained(tables_text(events) + query_text(name))
    assert any("events" in line for line in lines)


@needs_published
@pytest.mark.parametrize("name", QUERIES + CEP)
@pytest.mark.parametrize(
    ("tables", "scan"), [("ddl_gen", "Scan datagen (nexmark)"), ("ddl_kafka", "Scan kafka (rocketmq)")]
)
def test_each_published_query_is_read_bound_and_explained(tables: str, scan: str, name: str) -> None:
    lines = explained(published_query(name, tables), events=scan.split()[1])
    assert any(scan in line for line in lines)


@needs_published
def test_published_events_that_end_at_a_time_are_read() -> None:
    assert explained(published_query("q0", "ddl_gen_v2"), events="datagen")


@needs_published
def test_published_events_are_sent_on_to_a_topic() -> None:
    names = ("queries-cep/ddl_gen.sql", "queries-cep/ddl_kafka.sql", "queries-cep/insert_kafka.sql")
    assert "Scan datagen (nexmark)" in "\n".join(explained(published_text(*names)))


@needs_published
def test_published_events_and_views_of_one_file_are_read() -> None:
    results = SqlSession(variables=VALUES).compile(published_text("queries/ddl.sql") + "SHOW VIEWS;")
    shown = results[-1]
    assert isinstance(shown, TextResult)
    assert sorted(shown.rows) == [("auction",), ("bid",), ("person",)]


@needs_published
def test_no_published_file_is_left_out() -> None:
    assert found_files() == set(FILES)
    assert len(FILES) == 37
