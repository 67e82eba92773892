"""The port of a gateway: HTTP, logins, TLS, limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from played_jobs import Gateway

from certificates import identity_in, needs_openssl, trusting
from millstream.gateway import http_port
from millstream.gateway.api import MAX_BODY_BYTES, GatewayApi, Reply
from millstream.gateway.http_port import HttpPort
from millstream.model.clock import SystemClock
from millstream.security.guard import AuditLog, Guard
from millstream.security.tls import ServerIdentity
from millstream.security.users import AccessBook, User, UserKind

LIMIT_S = 60.0


@asynccontextmanager
async def serving(
    api: GatewayApi | SlowApi, guard: Guard | None = None, identity: ServerIdentity | None = None, **client: object
) -> AsyncIterator[httpx.AsyncClient]:
    port = HttpPort(api, "127.0.0.1", 0, guard=guard, identity=identity)
    bound = await port.start()
    scheme = "http" if identity is None else "https"
    try:
        async with httpx.AsyncClient(
            base_url=f"{scheme}://127.0.0.1:{bound}",
            timeout=LIMIT_S,
            **client,  # type: ignore[arg-type]
        ) as found:
            yield found
    finally:
        await port.close()


async def test_a_statement_runs_over_http(gateway: Gateway) -> None:
    async with serving(gateway.api) as client:
        handle = (await client.post("/v2/sessions", json={})).json()["sessionHandle"]
        started = await client.post(f"/v2/sessions/{handle}/statements", json={"statement": "SHOW CATALOGS"})
        uri = f"/v2/sessions/{handle}/operations/{started.json()['operationHandle']}/result/0?rowFormat=PLAIN_TEXT"
        while (answer := (await client.get(uri)).json())["resultType"] == "NOT_READY":
            pass
        assert answer["results"]["data"] == [{"kind": "INSERT", "fields": ["default_catalog"]}]


class SlowApi:
    """Has no rows yet when it is asked for the first times."""

    def __init__(self, empty_answers: int) -> None:
        self.left = empty_answers

    def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Reply:
        self.left -= 1
        return Reply(200, {"rows": self.left < 0}, may_wait=self.left >= 0)


async def test_a_request_for_rows_is_answered_when_the_first_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_port, "ANSWER_WAIT_S", LIMIT_S)
    async with serving(SlowApi(3)) as client:
        assert (await client.get("/")).json() == {"rows": True}


async def test_a_request_for_rows_is_answered_without_any_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_port, "ANSWER_WAIT_S", 0.0)
    async with serving(SlowApi(3)) as client:
        assert (await client.get("/")).json() == {"rows": False}


class BrokenApi(SlowApi):
    """Fails in a way that nobody expects."""

    def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Reply:
        raise RuntimeError("broken")


async def test_an_unexpected_failure_is_an_error_in_flinks_form_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(BrokenApi(0)) as client:
        answer = await client.get("/v1/info")
        assert (answer.status_code, len(answer.json()["errors"])) == (500, 1)
    assert "/v1/info" in caplog.text


async def test_a_body_over_the_limit_is_refused_by_its_length_and_by_its_bytes(gateway: Gateway) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65_536 + 1):
            yield b" " * 65_536

    async with serving(gateway.api) as client:
        assert (await client.post("/v1/sessions", content=b" " * (MAX_BODY_BYTES + 1))).status_code == 413
        assert (await client.post("/v1/sessions", content=parts())).status_code == 413
        assert (await client.post("/v1/sessions", content=b" " * MAX_BODY_BYTES)).status_code == 200


async def test_pages_of_browsers_are_refused(gateway: Gateway) -> None:
    async with serving(gateway.api) as client:
        refused = await client.post("/v1/sessions", content=b"{}", headers={"Origin": "http://other.example"})
        assert (refused.status_code, len(gateway.sessions)) == (403, 0)


async def test_with_access_control_only_a_super_user_gets_in(gateway: Gateway) -> None:
    book = AccessBook(lambda users, entries, revision: None)
    book.create_user(User("root", "secret-of-root", UserKind.SUPER))
    book.create_user(User("guest", "secret-of-guest"))
    guard = Guard(book, AuditLog(SystemClock()), clock=SystemClock())
    async with serving(gateway.api, guard) as client:
        for login in (None, ("root", "wrong-secret"), ("guest", "secret-of-guest"), ("nobody", "")):
            refused = await client.get("/v1/info", auth=login)
            assert (refused.status_code, refused.headers["www-authenticate"][:5]) == (401, "Basic")
        for header in ("Basic ???", "Bearer x", "Basic"):
            assert (await client.get("/v1/info", headers={"Authorization": header})).status_code == 401
        assert (await client.get("/v1/info", auth=("root", "secret-of-root"))).status_code == 200


@needs_openssl
async def test_it_speaks_tls_with_its_certificate(gateway: Gateway, tmp_path: Path) -> None:
    identity, files = identity_in(tmp_path)
    async with serving(gateway.api, identity=identity, verify=trusting(files)) as client:
        assert (await client.get("/v1/info")).status_code == 200
