"""A job server over a real broker, with drivers that are played."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from played_drivers import PlayedDrivers

from millstream.client.job_server import JobServerClient
from millstream.job_server import fleet, leadership, plan_work
from millstream.job_server.job_server import JobServer, JobServerOptions
from millstream.job_server.plan_work import Limits
from millstream.model.clock import SystemClock
from patience import eventually
from servers import Servers

TOKEN = "a secret"


@dataclass
class Served:
    """A job server and what stands around it."""

    server: JobServer
    drivers: PlayedDrivers
    url: str
    options: JobServerOptions

    @property
    def client(self) -> JobServerClient:
        return JobServerClient(self.url, token=self.options.token)

    @property
    def is_leading(self) -> bool:
        assert self.server.leadership is not None
        return self.server.leadership.is_leading


Start = Callable[..., "AsyncIterator[Served]"]


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the product lets pass in seconds passes at once."""
    monkeypatch.setattr(leadership, "RENEW_S", 0.05)
    monkeypatch.setattr(leadership, "TAKEOVER_S", 0.0)
    monkeypatch.setattr(leadership, "_READ_WAIT_MS", 20)
    monkeypatch.setattr(plan_work, "COLLECT_S", 0.0)
    monkeypatch.setattr(fleet, "_TICK_S", 0.02)


@pytest_asyncio.fixture
async def start_server(servers: Servers, tmp_path: Path, _soon: None) -> AsyncIterator[Callable[..., object]]:
    """Starts a job server of that name on the test's broker; it is closed at the end."""
    async with AsyncExitStack() as stack:

        async def start(name: str = "one", *, token: str = "") -> Served:
            options = JobServerOptions(
                tmp_path / name, tmp_path / "checkpoints", servers.nameserver, Limits(4, 8_000, 3), port=0, token=token
            )
            options.directory.mkdir(exist_ok=True)
            drivers = PlayedDrivers()
            server = JobServer(options, SystemClock(), make=drivers)
            address = await server.start()
            stack.push_async_callback(server.close)
            return Served(server, drivers, f"http://{address.host}:{address.port}", options)

        yield start


@pytest_asyncio.fixture
async def served(start_server: Callable[..., object]) -> Served:
    """One that leads."""
    one: Served = await start_server()  # type: ignore[misc]
    await eventually(lambda: one.is_leading)
    return one
