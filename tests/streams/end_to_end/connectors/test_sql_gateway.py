"""Statements of an SQL gateway on Spark, from its API to its last page."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic

from millstream.gateway.api import GatewayApi
from millstream.gateway.jobs import GatewayJobs
from millstream.gateway.sessions import SessionBook
from millstream.gateway.spark_jobs import SparkJobs
from millstream.model.clock import SystemClock
from millstream.streams.sql.session.compiler import SqlSession

pytestmark = pytest.mark.spark

TABLE = (
    "CREATE TABLE t (k STRING, n INT) WITH "
    "('connector' = 'rocketmq', 'topic' = 't', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset')"
)


class Client:
    """Asks as Flink's clients do."""

    def __init__(self, api: GatewayApi) -> None:
        self._api = api
        self._session = self.ask("POST", "/v3/sessions", b"{}")["sessionHandle"]

    def ask(self, method: str, path: str, body: bytes = b"") -> dict[str, Any]:
        reply = self._api.answer(method, path, {}, body)
        assert reply.status == 200, reply.document
        return dict(reply.document)

    def rows(self, statement: str, count: int) -> list[tuple[str, Any]]:
        """The first rows of a result, so many of them; fewer where it ends."""
        import json

        body = json.dumps({"statement": statement}).encode()
        handle = self.ask("POST", f"/v3/sessions/{self._session}/statements", body)["operationHandle"]
        operation = f"/v3/sessions/{self._session}/operations/{handle}"
        uri: str | None = f"{operation}/result/0"
        found: list[tuple[str, Any]] = []
        while uri is not None and len(found) < count:
            page = self.ask("GET", uri.partition("?")[0])
            found += [(row["kind"], row["fields"]) for row in page.get("results", {}).get("data", ())]
            uri = page.get("nextResultUri")
            time.sleep(0.02)
        self.ask("DELETE", f"{operation}/close")
        return found


@pytest.mark.usefixtures("spark")
def test_a_stream_its_sums_and_a_query_that_ends_are_read_page_by_page(
    spark: SparkSession, topic: Callable[..., AbstractContextManager[Topic]], tmp_path: Path
) -> None:
    bodies = [b'{"k": "a", "n": 1}', b'{"k": "b", "n": 2}', b'{"k": "a", "n": 5}']
    with topic([(0, body) for body in bodies]) as filled:
        starter = SparkJobs(filled.nameserver, tmp_path / "jobs", lambda: spark)
        jobs = GatewayJobs(starter)
        sessions = SessionBook(lambda: SqlSession(nameserver=filled.nameserver), SystemClock())
        client = Client(GatewayApi(sessions, jobs))
        try:
            assert client.rows(TABLE, 1) == [("INSERT", ["OK"])]
            assert client.rows("SELECT k, n FROM t", 3) == [
                ("INSERT", ["a", 1]),
                ("INSERT", ["b", 2]),
                ("INSERT", ["a", 5]),
            ]
            client.rows("SET 'execution.runtime-mode' = 'batch'", 1)
            sums = client.rows("SELECT k, SUM(n) AS n FROM t GROUP BY k ORDER BY k DESC", 100)
            assert sums == [("INSERT", ["b", 2]), ("INSERT", ["a", 6])]
            assert client.rows("SELECT 1, CAST(NULL AS STRING), DATE '2020-01-02'", 9) == [
                ("INSERT", [1, None, "2020-01-02"])
            ]
        finally:
            sessions.close_all()
            jobs.close()
