"""The role of a job server in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from millstream.broker.data_directory import check_directory, note_directory
from millstream.client.job_server import TOKEN_VARIABLE
from millstream.client.operations import parse_addresses
from millstream.job_server.job_server import JobServer, JobServerOptions
from millstream.job_server.plan_work import Limits
from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import StartRefused
from millstream.model.message import Address
from millstream.security.tls import TlsFiles, TlsMode
from millstream.server.condition import Condition
from millstream.server.configuration.roles import JobsConfiguration
from millstream.server.metrics.jobs import add_jobs
from millstream.server.served import Served
from millstream.server.site import Site
from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer

__all__ = ["JobsRole"]

_SHARE_OF_MEMORY: Final = 0.75
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class JobsRole(Served[dict[str, Address]]):
    """Its start gives where its ports are reached, by their name."""

    def __init__(self, configuration: JobsConfiguration, *, clock: Clock | None = None) -> None:
        self._configuration = configuration
        self.directory = Path(configuration.directory)
        super().__init__(_site(configuration, clock or SystemClock()), Condition(holds_log=False))
        self.jobs: JobServer | None = None

    async def _open(self) -> dict[str, Address]:
        found: dict[str, Address] = {}
        configuration = self._configuration
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not token and configuration.host not in _LOOPBACK:
            words = (
                f"Every client that reaches {configuration.host} could run programs here: "
                f"set {TOKEN_VARIABLE}, or listen on 127.0.0.1."
            )
            raise StartRefused("ILLEGAL_SETTING", words, remedy="")
        check_directory(self.directory)
        if configuration.metrics_port >= 0:
            found["metrics"] = await self._open_pages(configuration.metrics_port)
        if configuration.tls.certificate or configuration.tls.mode == "required":
            self.site.open_tls(self.directory)
        lock = DirectoryLock(self.directory, FileLayer())
        self._resources.callback(lock.release)
        note_directory(self.directory)
        options = JobServerOptions(
            self.directory,
            Path(configuration.checkpoint_root) if configuration.checkpoint_root else self.directory / "checkpoints",
            _nameserver(configuration),
            _limits(configuration),
            configuration.host,
            self.site.reachable_host,
            configuration.port,
            token,
        )
        identity = None if self.site.identity is None else self.site.identity[0]
        self.jobs = server = JobServer(options, self.site.clock, identity)
        self._resources.push_async_callback(server.close)
        found["http"] = await server.start()
        self._metrics.node_id = f"{found['http'].host}:{found['http'].port}"
        self._metrics.additions.append(lambda page: add_jobs(page, server.jobs(), self.site.clock.now_ms()))
        return found


def _limits(told: JobsConfiguration) -> Limits:
    cores = told.cores or os.cpu_count() or 1
    machine_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    memory_mb = told.memory_mb or round(machine_mb * _SHARE_OF_MEMORY)
    return Limits(cores, memory_mb, told.max_drivers, min(told.shared.cores, cores), told.shared.memory_mb)


def _nameserver(told: JobsConfiguration) -> str:
    try:
        return ";".join(parse_addresses(";".join(told.nameservers)))
    except ValueError as error:
        raise StartRefused("ILLEGAL_SETTING", f"nameservers: {error}.") from None


def _site(configuration: JobsConfiguration, clock: Clock) -> Site:
    tls = configuration.tls
    if bool(tls.certificate) != bool(tls.key):
        raise StartRefused("ILLEGAL_SETTING", "tls.certificate and tls.key belong together; one of them is empty.")
    return Site(
        configuration.host,
        configuration.advertised_host or None,
        False,
        None,
        None if tls.mode == "off" else TlsMode(tls.mode),
        TlsFiles(Path(tls.certificate), Path(tls.key)) if tls.certificate else None,
        clock,
    )
