"""The SQL gateway of a process: its port, its sessions and the Spark session that they share."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from millstream.gateway.api import GatewayApi
from millstream.gateway.http_port import HttpPort
from millstream.gateway.jobs import GatewayJobs
from millstream.gateway.sessions import SessionBook
from millstream.gateway.spark_jobs import SparkJobs
from millstream.model.errors import MillstreamError, StartRefused
from millstream.model.message import Address
from millstream.security.tls import TlsMode
from millstream.server.site import Site
from millstream.streams.sql.session.compiler import SqlSession

__all__ = ["SqlGatewayRole"]

_log = logging.getLogger(__name__)

_SWEEP_S: Final = 30.0
"""Seconds between two looks for sessions that nobody uses."""

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class SqlGatewayRole:
    """Started once; `directory`, which the caller has locked, keeps the checkpoints of named jobs. Port 0 takes a
    free one."""

    def __init__(self, site: Site, directory: Path, port: int, nameserver: str, *, warm: bool = True) -> None:
        self._site = site
        self._port = port
        self._warm = warm
        self.spark = SparkJobs(nameserver, directory / "jobs")
        self.jobs = GatewayJobs(self.spark)
        self.sessions = SessionBook(lambda: SqlSession(nameserver=nameserver), site.clock)
        self._http: HttpPort | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> Address:
        """Listen; where clients reach it. Raises StartRefused.

        Whoever reaches the port may run code of this machine (CREATE FUNCTION, tables of files): one that others
        reach has to ask for a user.
        """
        site = self._site
        if site.host not in _LOOPBACK and site.guard is None:
            raise StartRefused(
                "ILLEGAL_SETTING",
                f"The SQL gateway listens on {site.host} only with access control.",
                remedy="Set access.enabled = true, or listen on 127.0.0.1.",
            )
        # One port speaks one of both: TLS where it is required, or where a certificate was given.
        wants_tls = site.tls is TlsMode.REQUIRED or site.tls_files is not None
        identity = site.identity[0] if wants_tls and site.identity is not None else None
        if site.host not in _LOOPBACK and identity is None:
            _log.warning("The SQL gateway on %s takes secrets in plain text; tls.mode = required avoids it.", site.host)
        api = GatewayApi(self.sessions, self.jobs)
        self._http = HttpPort(api, site.host, self._port, guard=site.guard, identity=identity)
        address = Address(site.reachable_host, await self._http.start())
        self._tasks.append(asyncio.create_task(self._sweep_forever(), name="sql-gateway-sweep"))
        if self._warm:
            self._tasks.append(asyncio.create_task(self._warm_up(), name="sql-gateway-warm-up"))
        return address

    async def close(self) -> None:
        """Answer no more, end all sessions and jobs, and Spark."""
        for task in self._tasks:
            task.cancel()
        if self._http is not None:
            await self._http.close()
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self.sessions.close_all()
        self.jobs.close()
        self.spark.close()

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                for handle in await asyncio.to_thread(self.sessions.close_idle):
                    _log.info("The session %s was idle and is closed.", handle)
            except Exception:  # noqa: BLE001 - an edge: a look that fails must not be the last one
                _log.exception("A look for idle sessions failed.")

    async def _warm_up(self) -> None:
        with suppress(asyncio.CancelledError):
            try:
                await asyncio.to_thread(self.spark.warm)
            except MillstreamError as error:
                _log.error("%s The first statement that needs it tries again.", error)
