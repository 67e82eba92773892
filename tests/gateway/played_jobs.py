"""Jobs of a gateway that a test plays: it hands over rows and ends them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.gateway.api import GatewayApi, Reply
from millstream.gateway.jobs import GatewayJobs
from millstream.gateway.sessions import SessionBook
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError
from millstream.streams.jobs.progress import JobProgress, ResultRows
from millstream.streams.plan.changelog import RowKind
from millstream.streams.plan.nodes import JobPlan, QueryPlan
from millstream.streams.sql.session.compiler import SqlSession

PATIENCE = 2_000_000
"""How often a test looks for what another thread does before it gives up."""


@dataclass
class PlayedJob:
    """A job that ends when it is told to."""

    plan: JobPlan | QueryPlan
    name: str
    on_rows: Callable[[ResultRows], None]
    keeps_state: bool
    now: JobProgress = field(default_factory=JobProgress)
    failure: MillstreamError | None = None

    def rows(self, *rows: tuple[object, ...], kinds: list[RowKind] | None = None) -> None:
        self.on_rows(ResultRows("result", (), list(rows), kinds))

    def end(self) -> None:
        self.now = replace(self.now, state="ended")

    def progress(self) -> JobProgress:
        return self.now

    def wait(self, timeout_s: float) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.now.state != "running"

    def stop(self) -> None:
        self.end()


@dataclass
class PlayedStarter:
    """Starts played jobs; `refusal` is raised in place of a start."""

    started: list[PlayedJob] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    refusal: Exception | None = None

    def start(
        self, plan: JobPlan | QueryPlan, name: str, on_rows: Callable[[ResultRows], None], *, keeps_state: bool
    ) -> PlayedJob:
        if self.refusal is not None:
            raise self.refusal
        job = PlayedJob(plan, name, on_rows, keeps_state)
        self.started.append(job)
        return job

    def forget(self, name: str) -> None:
        self.forgotten.append(name)


@dataclass
class Gateway:
    """The core of a gateway over played jobs."""

    clock: ManualClock = field(default_factory=ManualClock)
    starter: PlayedStarter = field(default_factory=PlayedStarter)

    def __post_init__(self) -> None:
        self.jobs = GatewayJobs(self.starter)
        self.sessions = SessionBook(lambda: SqlSession(nameserver="127.0.0.1:9"), self.clock)
        self.api = GatewayApi(self.sessions, self.jobs)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | bytes = b"", **query: str) -> Reply:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.api.answer(method, path, query, raw)

    def session(self, **body: Any) -> str:
        reply = self.ask("POST", "/v3/sessions", body)
        assert reply.status == 200, reply.document
        return str(reply.document["sessionHandle"])

    def run(self, session: str, statement: str, **more: Any) -> str:
        """The path of the operation."""
        reply = self.ask("POST", f"/v3/sessions/{session}/statements", {"statement": statement, **more})
        assert reply.status == 200, reply.document
        return f"/v3/sessions/{session}/operations/{reply.document['operationHandle']}"

    def page(self, operation: str, token: int = 0, **query: str) -> Reply:
        """A page, once the statement has run."""
        for _ in range(PATIENCE):
            reply = self.ask("GET", f"{operation}/result/{token}", **query)
            if reply.document.get("resultType") != "NOT_READY":
                return reply
        raise AssertionError("the statement does not come to an end")

    def fields(self, session: str, statement: str) -> list[list[Any]]:
        """The rows of the first page of a statement."""
        reply = self.page(self.run(session, statement))
        assert reply.status == 200, reply.document
        return [row["fields"] for row in reply.document["results"]["data"]]
