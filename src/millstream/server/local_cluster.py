"""A nameserver, several brokers and proxies on one machine, each in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.broker.data_directory import check_directory, note_directory
from millstream.client.client import Client
from millstream.client.metadata_copier import BrokerMetadataCopier
from millstream.model.clock import Clock, SystemClock
from millstream.server.supervised import SupervisedRole
from millstream.transport.listening import listen_refused

__all__ = ["MAX_BROKERS", "MAX_PROXIES", "PORT_STEP", "LocalCluster", "LocalClusterOptions"]

_log = logging.getLogger(__name__)

MAX_BROKERS: Final = 64
"""Broker processes of one command at most."""

MAX_PROXIES: Final = 64
"""Proxy processes of one command at most."""

PORT_STEP: Final = 10
"""Between the ports of two brokers: RocketMQ's clients and replicas derive further ports from a broker's."""


@dataclass(frozen=True, slots=True)
class LocalClusterOptions:
    """Where the processes listen and keep their data, each in a folder of its own; port 0 takes free ones.

    The brokers' ports are `broker_port` and each tenth after it. `settings` are further ones of all brokers, as
    `name=value`. With several `replicas` each broker is so many processes, one of which is the master; a controller
    runs in the nameserver's process then. Several `proxies` share the port for gRPC. The pages of the proxies are at
    `metrics_port` and each one after it; -1 serves none.
    """

    directory: Path
    brokers: int = 2
    replicas: int = 1
    host: str = "127.0.0.1"
    advertised_host: str | None = None
    nameserver_port: int = 9876
    controller_port: int = 9877
    broker_port: int = 10911
    grpc_port: int = 8081
    settings: tuple[str, ...] = ()
    proxies: int = 1
    metrics_port: int = -1


class LocalCluster:
    """Starts all, keeps them running, and stops all in order; all calls from one event loop."""

    def __init__(self, options: LocalClusterOptions, *, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        settings = [f"port={options.nameserver_port}"]
        if options.replicas > 1:
            settings += ["controller.enabled=true", f"controller.port={options.controller_port}"]
        self.nameserver = self._role("nameserver", "nameserver", settings)
        self.brokers: list[SupervisedRole] = []
        self.proxies: list[SupervisedRole] = []

    async def start(self) -> dict[str, str]:
        """Start the nameserver, then the brokers and the proxies; the address of each process by its name.

        Raises CHILD_PROCESS_FAILED, and leaves nothing running then; DATA_MISSING where the folder of one is gone;
        PORT_IN_USE where several proxies are to share a port that somebody has.
        """
        check_directory(self._options.directory)
        try:
            await self.nameserver.start()
            where = self.nameserver.addresses["nameserver"]
            numbers = range(self._options.brokers * self._options.replicas)
            self.brokers = [self._broker(number, where) for number in numbers]
            await asyncio.gather(*(broker.start() for broker in self.brokers))
            await self._equip(where)
            await self._start_proxies(where)
            note_directory(self._options.directory, *(role.name for role in (self.nameserver, *self.brokers)))
        except BaseException:
            await self.close()
            raise
        found = {**self.nameserver.addresses, **{broker.name: broker.addresses["broker"] for broker in self.brokers}}
        found["grpc"] = self.proxies[0].addresses["grpc"]
        pages = {f"{proxy.name} metrics": proxy.addresses.get("metrics", "") for proxy in self.proxies}
        return found | {name: address for name, address in pages.items() if address}

    def reload_certificate(self) -> None:
        """Nothing: the processes have certificates of their own."""

    async def close(self) -> None:
        """Stop the proxies, then the brokers, then the nameserver."""
        await asyncio.gather(*(proxy.close() for proxy in self.proxies))
        await asyncio.gather(*(broker.close() for broker in self.brokers))
        await self.nameserver.close()

    async def _start_proxies(self, nameserver: str) -> None:
        """The first one finds the port, which the others share with it."""
        port = self._options.grpc_port
        if self._options.proxies > 1 and port:
            # The system would let any process of this user share it, those of another cluster too.
            await _check_free(self._options.host, port)
        first = self._proxy(0, nameserver, port)
        self.proxies = [first]
        await first.start()
        port = int(first.addresses["grpc"].rpartition(":")[2])
        self.proxies += [self._proxy(number, nameserver, port) for number in range(1, self._options.proxies)]
        await asyncio.gather(*(proxy.start() for proxy in self.proxies[1:]))

    def _proxy(self, number: int, nameserver: str, port: int) -> SupervisedRole:
        settings = [f"grpc_port={port}", f'nameservers=["{nameserver}"]', "remoting_port=-1"]
        if self._options.proxies > 1:
            settings.append("share_port=true")
        if self._options.metrics_port >= 0:
            first = self._options.metrics_port
            settings.append(f"metrics_port={first and first + number}")
        return self._role("proxy", f"proxy-{number + 1}" if number else "proxy", settings, port="grpc_port")

    async def _equip(self, nameserver: str) -> None:
        """Brokers that an earlier run did not have get the topics and groups of the others."""
        async with Client(nameserver) as client:
            for name in map(self._set_name, range(self._options.brokers)):
                outfit = await client.run(BrokerMetadataCopier(client.conversations).equip(name))
                if outfit.topics or outfit.groups:
                    words = "%s was given %d topics and %d groups that other brokers have."
                    _log.warning(words, name, len(outfit.topics), len(outfit.groups))

    def _set_name(self, number: int) -> str:
        return f"broker-{number}"

    def _broker(self, number: int, nameserver: str) -> SupervisedRole:
        """The process of that number: the first replica of each broker, then the second of each."""
        options = self._options
        port = options.broker_port and options.broker_port + PORT_STEP * number
        replica, broker = divmod(number, options.brokers)
        name = self._set_name(broker)
        settings = [f"port={port}", f"name={name}", f'nameservers=["{nameserver}"]', *options.settings]
        if options.replicas > 1:
            settings.append(f'controllers=["{self.nameserver.addresses["controller"]}"]')
        # The folder of a broker without replicas is that of its first one with replicas.
        return self._role("broker", name if not replica else f"{name}-replica-{replica + 1}", settings)

    def _role(self, role: str, name: str, settings: list[str], *, port: str = "port") -> SupervisedRole:
        options = self._options
        folder = options.directory / name
        words = ["--dir", str(folder), "--host", options.host]
        if options.advertised_host is not None:
            words += ["--advertised-host", options.advertised_host]
        for setting in settings:
            words += ["--set", setting]
        log = options.directory / f"{name}.log"
        return SupervisedRole(role, name, words, log, self._clock, port=port)


async def _check_free(host: str, port: int) -> None:
    """Raises PORT_IN_USE, ADDRESS_NOT_LOCAL."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as error:
        raise listen_refused(host, port, error) from None
