"""One server for the tests of the command line, and a way to run commands against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from commands import Ran, run

from millstream.server.child import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        yield process


@pytest.fixture
def millstream(server: ServerProcess) -> Callable[..., Ran]:
    """Runs a command against the server."""

    def against_server(*arguments: str, stdin: str = "") -> Ran:
        return run(*arguments, "--nameserver", server.addresses.nameserver, stdin=stdin)

    return against_server
