"""A job server: follows the job topic, leads when it can, runs drivers, serves HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millstream.job_server.driver_process import DriverProcess, end_left_drivers
from millstream.job_server.fleet import Fleet, FleetOptions, MakeProcess
from millstream.job_server.http_api import MAX_CONNECTIONS, JobApi
from millstream.job_server.job_service import JobService
from millstream.job_server.leadership import Leadership
from millstream.job_server.plan_work import Limits
from millstream.model.clock import Clock
from millstream.model.message import Address
from millstream.security.tls import ServerIdentity
from millstream.transport.asgi_server import AsgiServer

__all__ = ["JobServer", "JobServerOptions"]

_log = logging.getLogger(__name__)

_STOP_S: Final = 10.0
_ID_FILE: Final = "server-id"


@dataclass(frozen=True, slots=True)
class JobServerOptions:
    """`directory` is the server's own, which the caller has locked. `checkpoints` all servers of the jobs must see.

    `told_host` is what other servers send clients to, `token` what clients must send, blank for none.
    """

    directory: Path
    checkpoints: Path
    nameserver: str
    limits: Limits
    host: str = "127.0.0.1"
    announced_host: str = "127.0.0.1"
    port: int = 8084
    token: str = ""


class JobServer:
    """Started once, and closed; all calls from one event loop. `make` makes the processes of drivers."""

    def __init__(
        self,
        options: JobServerOptions,
        clock: Clock,
        identity: ServerIdentity | None = None,
        make: MakeProcess = DriverProcess,
    ) -> None:
        self._options = options
        self._clock = clock
        self._identity = identity
        self._make = make
        self._http: AsgiServer | None = None
        self.leadership: Leadership | None = None
        self.fleet: Fleet | None = None
        self.service: JobService | None = None

    async def start(self) -> Address:
        """Listen, and begin to follow the jobs; where it listens. Raises StartRefused."""
        options = self._options
        server = await asyncio.to_thread(self._prepare)
        api = JobApi(options.token, options.host)
        self._http = AsgiServer(
            api.application(), identity=self._identity, max_connections=MAX_CONNECTIONS, stop_s=_STOP_S
        )
        bound = await self._http.start(options.host, options.port)
        scheme = "http" if self._identity is None else "https"
        host = f"[{options.announced_host}]" if ":" in options.announced_host else options.announced_host
        fleet_options = FleetOptions(options.directory, options.checkpoints, options.nameserver, options.limits)
        self.leadership = Leadership(
            options.nameserver, server, f"{scheme}://{host}:{bound.port}", self._clock, self._wake
        )
        self.fleet = Fleet(fleet_options, self.leadership, self._clock, self._make)
        self.service = api.service = JobService(self.leadership, self.fleet, fleet_options, self._clock)
        self.leadership.start()
        self.fleet.start()
        return Address(options.announced_host, bound.port)

    async def close(self) -> None:
        """Answer what is under way, end all drivers, and give the jobs back."""
        if self._http is not None:
            self._http.stop()
            await self._http.wait()
        if self.fleet is not None:
            await self.fleet.close()
        if self.leadership is not None:
            await self.leadership.close()

    def jobs(self) -> list[dict[str, Any]]:
        """What the page of metrics tells of: the jobs of a server that leads, none of another one."""
        if self.service is None or self.leadership is None or not self.leadership.is_leading:
            return []
        return self.service.jobs()

    def _wake(self) -> None:
        if self.fleet is not None:
            self.fleet.wake()

    def _prepare(self) -> str:
        """Wait for drivers that an earlier server of the directory has left; the name of this server."""
        directory = self._options.directory
        end_left_drivers(sorted((directory / "drivers").glob("*.lock")))
        self._options.checkpoints.mkdir(parents=True, exist_ok=True)
        file = directory / _ID_FILE
        if not file.exists():
            file.write_text(json.dumps({"version": 1, "id": uuid.uuid4().hex[:16]}) + "\n")
        id: str = json.loads(file.read_text())["id"]
        return id
