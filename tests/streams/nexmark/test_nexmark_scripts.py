"""All of Nexmark's SQL is read, bound and explained: ours, and the published texts where a copy of them is at hand."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from benchmarks.nexmark.scripts import CEP, QUERIES, query_text, tables_text
from nexmark_events import variables

from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sql.compiler import SqlSession
from millstream.streams.sql.explain import explain_node

PUBLISHED = os.environ.get("MILLSTREAM_NEXMARK_QUERIES", "")
"""The directory `nexmark-flink/src/main/resources` of the project that publishes them."""

VALUES = {
    **variables(),
    "OUTPUT": "/tmp/bids",
    "SIDE_INPUT": "/tmp/words.csv",
    "TPS": "1000",
    "EVENTS_NUM": "1000",
    "PERSON_PROPORTION": "1",
    "AUCTION_PROPORTION": "3",
    "BID_PROPORTION": "46",
    "NEXMARK_DIR": "/tmp",
    "SUBMIT_TIME": "now",
    "FLINK_HOME": "/tmp",
    "BOOTSTRAP_SERVERS": "127.0.0.1:9",
    "NEXMARK_TABLE": "datagen",
}


def explained(script: str) -> list[str]:
    plan = SqlSession(nameserver="127.0.0.1:9", variables=VALUES).compile(script)[-1]
    assert isinstance(plan, JobPlan)
    return explain_node(plan.sinks[0].input)


@pytest.mark.parametrize("name", QUERIES + CEP)
@pytest.mark.parametrize("events", ["made", "topic"])
def test_each_query_is_read_bound_and_explained(events: str, name: str) -> None:
    lines = explained(tables_text(events) + query_text(name))
    assert any("events" in line for line in lines)


@pytest.mark.skipif(not PUBLISHED, reason="MILLSTREAM_NEXMARK_QUERIES names no directory")
@pytest.mark.parametrize("name", QUERIES + CEP)
def test_each_published_query_is_read_bound_and_explained(name: str) -> None:
    folder, query = ("queries-cep", name[4:]) if name in CEP else ("queries", name)
    directory = Path(PUBLISHED) / folder
    texts = [(directory / f"{part}.sql").read_text() for part in ("ddl_gen", "ddl_views", query)]
    assert explained(re.sub(r"(?m)^--.*$", "", "\n".join(texts)))
