"""One server as a program, and the drivers of the official clients; all shared by a run."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop.driver import CLIENTS, JAVA_REMOTING, REMOTING_CLIENTS, Driver, Missing
from interop.server import Server
from millstream.client.profiles import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
from millstream.proxy.remote.access import FOLLOW_INTERVAL_S
from millstream.security.signature import Credentials
from millstream.server.child import RoleProcess, ServerProcess

# By path: a package of another project that is installed as `tests` would be found first.
sys.path.append(str(Path(__file__).parent.parent / "tests"))

SUPER_USER = Credentials("root", "secret-of-root")
"""Of those servers that have access control."""

SUPER_USER_VARIABLES = {ACCESS_KEY_VARIABLE: SUPER_USER.access_key, SECRET_KEY_VARIABLE: SUPER_USER.secret_key}

_numbers = itertools.count()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """A scenario that a client cannot play is skipped, and says why."""
    try:
        return (yield)
    except Missing as missing:
        pytest.skip(f"this client cannot play it: {missing}")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        yield Server.of(process)


@pytest.fixture(scope="session")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Nameserver, broker and proxy as processes of their own; all clients come to the proxy."""
    with ExitStack() as running:
        yield _roles(tmp_path_factory.mktemp("roles"), running)


def _roles(folder: Path, running: ExitStack, *more: str, credentials: Credentials | None = None) -> Server:
    """The three processes, with `more` options for each, until `running` ends."""
    environment = None if credentials is None else SUPER_USER_VARIABLES

    def role(name: str, *options: str) -> dict[str, str]:
        process = RoleProcess(
            name, folder / name, options=(*options, *more), log=folder / f"{name}.log", environment=environment
        )
        return running.enter_context(process).addresses

    nameserver = role("nameserver", "--port", "0")["nameserver"]
    broker = role("broker", "--port", "0", "--nameservers", nameserver)["broker"]
    proxy = role("proxy", "--grpc-port", "0", "--remoting-port", "0", "--nameservers", nameserver)
    found = Server(nameserver, broker, proxy["grpc"], proxy["remoting"], credentials)
    found.log = folder / "proxy.log"
    found.access_delay_s = 2 * FOLLOW_INTERVAL_S
    return found


@pytest.fixture(scope="session")
def guarded_roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The same with access control, and with TLS beside plaintext."""
    more = ("--set", "access.enabled=true", "--set", "tls.mode=permissive")
    with ExitStack() as running:
        yield _roles(tmp_path_factory.mktemp("guarded-roles"), running, *more, credentials=SUPER_USER)


@pytest.fixture(params=["guarded", "guarded_roles"])
def guarded_door(request: pytest.FixtureRequest) -> Server:
    """Where clients of remoting come in under access control: the broker's port, and then a proxy's."""
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with access control, and with TLS beside plaintext."""
    folder = tmp_path_factory.mktemp("guarded")
    options = ("--secure", "--tls", "permissive")
    log = folder / "server.log"
    with ServerProcess(folder / "data", options=options, log=log, environment=SUPER_USER_VARIABLES) as process:
        found = Server.of(process, SUPER_USER)
        found.log = log
        yield found


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

        def stop_all() -> None:
            for driver in running.values():
                driver.stop()

        ending.callback(stop_all)
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
