"""One server as a program, and the drivers of the official clients; all shared by a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop.driver import CLIENTS, JAVA_REMOTING, REMOTING_CLIENTS, Driver, Missing
from interop.server import Server
from millstream.server.child import RoleProcess, ServerProcess

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        yield Server.of(process)


@pytest.fixture(scope="session")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Nameserver, broker and proxy as processes of their own; all clients come to the proxy."""
    folder = tmp_path_factory.mktemp("roles")
    with ExitStack() as running:

        def role(name: str, *options: str) -> dict[str, str]:
            log = folder / f"{name}.log"
            return running.enter_context(RoleProcess(name, folder / name, options=options, log=log)).addresses

        nameserver = role("nameserver", "--port", "0")["nameserver"]
        broker = role("broker", "--port", "0", "--nameservers", nameserver)["broker"]
        proxy = role("proxy", "--grpc-port", "0", "--remoting-port", "0", "--nameservers", nameserver)
        yield Server(nameserver, broker, proxy["grpc"], proxy["remoting"])


@pytest.fixture(params=["server", "proxied"])
def door(request: pytest.FixtureRequest) -> Server:
    """Where clients of remoting come in: the broker's port, and then a proxy's."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Driver]]:
    running: dict[str, Driver] = {}
    folder: Path = tmp_path_factory.mktemp("drivers")

    def start(name: str) -> Driver:
        if name not in running or running[name].process.poll() is not None:
            try:
                running[name] = Driver.start(name, folder / f"{name}-{next(_numbers)}.log")
            except Missing as missing:
                pytest.skip(f"the {name} client cannot run here: {missing}")
        return running[name]

    with ExitStack() as ending:
        ending.callback(lambda: [driver.stop() for driver in running.values()])
        yield start


@pytest.fixture(params=CLIENTS)
def driver(request: pytest.FixtureRequest, drivers: Callable[[str], Driver]) -> Driver:
    """Each official client, one after the other."""
    return drivers(request.param)


@pytest.fixture(params=REMOTING_CLIENTS)
def remoting(request: pytest.FixtureRequest, drivers: Callable[[str], Driver]) -> Driver:
    """Each client of the remoting protocol, one after the other."""
    return drivers(request.param)


@pytest.fixture(params=JAVA_REMOTING)
def java(request: pytest.FixtureRequest, drivers: Callable[[str], Driver]) -> Driver:
    """RocketMQ's own remoting client in both versions."""
    return drivers(request.param)


@pytest.fixture
def new_client() -> Callable[[], str]:
    """Names of clients within a driver."""
    return lambda: f"c{next(_numbers)}"
