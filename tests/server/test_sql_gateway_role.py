"""An SQL gateway as a role: where it listens and whom it lets in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from certificates import needs_openssl
from millstream.model.errors import StartRefused
from millstream.model.message import Address
from millstream.server.configuration.roles import AccessControl, SqlGatewayConfiguration, Tls
from millstream.server.separate import SeparateRole

LIMIT_S = 60.0


@asynccontextmanager
async def running(directory: Path, **changes: Any) -> AsyncIterator[tuple[SeparateRole, dict[str, Address]]]:
    told = {"port": 0, "directory": str(directory), "tls": Tls("off"), "warm": False, **changes}
    role = SeparateRole(SqlGatewayConfiguration(**told))
    addresses = await role.start()
    try:
        yield role, addresses
    finally:
        await role.close()


async def test_it_answers_and_its_pages_say_that_it_is_ready(tmp_path: Path) -> None:
    async with running(tmp_path, metrics_port=0) as (_, addresses), httpx.AsyncClient(timeout=LIMIT_S) as client:
        at, pages = addresses["sql-gateway"], addresses["metrics"]
        assert (await client.get(f"http://{at.host}:{at.port}/v1/api_versions")).json()["versions"][0] == "V1"
        assert (await client.get(f"http://{pages.host}:{pages.port}/readyz")).status_code == 200


async def test_a_directory_serves_one_gateway(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.raises(StartRefused) as refused:
            async with running(tmp_path):
                pass
        assert refused.value.name == "DATA_DIRECTORY_IN_USE"


async def test_it_is_not_reached_from_elsewhere_without_access_control(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match=r"access control") as refused:
        async with running(tmp_path, host="0.0.0.0"):
            pass
    assert refused.value.name == "ILLEGAL_SETTING"
    async with running(tmp_path / "b", host="0.0.0.0", access=AccessControl(True)) as (role, addresses):
        port, user = addresses["sql-gateway"].port, role.made_user
        assert user is not None
        async with httpx.AsyncClient(timeout=LIMIT_S, base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.get("/info")).status_code == 401
            assert (await client.get("/info", auth=(user.access_key, user.secret_key))).status_code == 200


@needs_openssl
async def test_it_speaks_tls_where_that_is_required(tmp_path: Path) -> None:
    async with running(tmp_path, tls=Tls("required")) as (_, addresses):
        at = addresses["sql-gateway"]
        async with httpx.AsyncClient(timeout=LIMIT_S, verify=False) as client:
            assert (await client.get(f"https://{at.host}:{at.port}/info")).status_code == 200
