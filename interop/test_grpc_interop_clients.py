"""The interop test clients of grpc-go and grpc-java against the port's transport, with gRPC's own test service on it.

Two cases are left out, because the transport has no use for them: it never compresses an answer
(`server_compressed_unary`), and sends no metadata of a service's own nor reads binary
metadata (`custom_metadata`; what comes of its text is tested here all the same).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from interop.driver import Missing, require
from interop.grpc_testing.clients import go_client, grpc_certificates, java_client
from interop.grpc_testing.service import METHODS, TestService
from millstream.security.tls import ServerIdentity, TlsMode
from millstream.server.certificate import own_certificate
from millstream.transport.grpc.server import GrpcPort

CLIENTS: Final = ("go", "go over TLS", "java with Netty", "java with OkHttp over TLS")

CASES: Final = {
    "empty_unary": ["EmptyCall"],
    "large_unary": ["UnaryCall"],
    "client_streaming": ["StreamingInputCall"],
    "server_streaming": ["StreamingOutputCall"],
    "ping_pong": ["FullDuplexCall"],
    "empty_stream": ["FullDuplexCall"],
    "status_code_and_message": ["UnaryCall", "FullDuplexCall"],
    "special_status_message": ["UnaryCall"],
    "unimplemented_method": [],
    "unimplemented_service": [],
    "cancel_after_first_response": ["FullDuplexCall"],
}
"""Case -> methods of the calls that the service sees."""

RACING_CASES: Final = ("cancel_after_begin", "timeout_on_sleeping_server")
"""Cases whose client may give up before the server sees its call."""

JAVA_CASES: Final = {
    # The first call says that it is compressed, and is not: the service has to see that.
    "client_compressed_unary": ["UnaryCall"] * 3,
    # It opens a call for the probe that it leaves out, and drops it.
    "client_compressed_streaming_noprobe": ["StreamingInputCall"] * 2,
}
"""Those that grpc-go's client lacks."""

LIMIT_S: Final = 120.0
"""Seconds that one case may take: a Java machine starts slowly on a busy computer."""

Started = tuple[list[str], ServerIdentity | None]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Started]:
    """Client -> its command, and what the port shows to it."""
    folder = tmp_path_factory.mktemp("grpc-clients")
    known: dict[str, Started] = {}

    def find(client: str) -> Started:
        if client not in known:
            try:
                known[client] = _start(client, folder)
            except Missing as missing:
                pytest.skip(f"the {client} client cannot run here: {missing}")
        return known[client]

    return find


def _start(client: str, folder: Path) -> Started:
    if client == "go":
        return go_client(folder), None
    if client == "go over TLS":
        require("openssl")
        files = own_certificate(folder, ["127.0.0.1"], time.time())
        return [*go_client(folder), "-use_tls", "-use_test_ca", f"-ca_file={files.certificate}"], ServerIdentity(files)
    if client == "java with Netty":
        return [*java_client(), "--use_tls=false"], None
    options = ["--use_okhttp=true", "--use_tls=true", "--use_test_ca=true", "--server_host_override=foo.test.google.fr"]
    return [*java_client(), *options], ServerIdentity(grpc_certificates(folder))


@asynccontextmanager
async def serving(identity: ServerIdentity | None) -> AsyncIterator[tuple[TestService, int]]:
    """The service at a port; at the end of a client nothing of its calls and connections is left."""
    tls = None if identity is None else (identity, TlsMode.REQUIRED)
    port = GrpcPort(METHODS, tls=tls)
    port.handler = service = TestService()
    bound = await port.start()
    try:
        yield service, bound
        async with asyncio.timeout(LIMIT_S):
            # What ends has no event of its own.
            while port.calls or port.connections or service.tasks:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        await port.close(0)
    assert service.faults == []


async def play(command: list[str], port: int, case: str) -> tuple[int, str]:
    """How a client ends that plays the case, and what it says."""
    words = [*command, "--server_host=127.0.0.1", f"--server_port={port}", f"--test_case={case}"]
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said.decode(errors="replace")[-4000:]


async def pass_case(started: Started, case: str) -> TestService:
    """The service once the client has passed the case."""
    command, identity = started
    async with serving(identity) as (service, port):
        code, said = await play(command, port, case)
        assert code == 0, said
    return service


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("client", CLIENTS)
async def test_the_port_passes_the_cases_of_grpcs_own_test_clients(
    client: str, case: str, start: Callable[[str], Started]
) -> None:
    service = await pass_case(start(client), case)
    assert service.began == CASES[case]
    assert service.gone == (["FullDuplexCall"] if case == "cancel_after_first_response" else [])


@pytest.mark.parametrize("case", RACING_CASES)
@pytest.mark.parametrize("client", CLIENTS)
async def test_calls_that_are_given_up_at_once_end_well_and_leave_nothing(
    client: str, case: str, start: Callable[[str], Started]
) -> None:
    service = await pass_case(start(client), case)
    assert service.gone == service.began


@pytest.mark.parametrize("case", JAVA_CASES)
@pytest.mark.parametrize("client", [client for client in CLIENTS if client.startswith("java")])
async def test_requests_that_grpc_java_compresses_arrive_whole(
    client: str, case: str, start: Callable[[str], Started]
) -> None:
    service = await pass_case(start(client), case)
    assert service.began == JAVA_CASES[case]
    assert service.gone == ([] if case == "client_compressed_unary" else ["StreamingInputCall"])
    assert service.compressed == (1 if case == "client_compressed_unary" else 0)


@pytest.mark.parametrize("client", CLIENTS)
async def test_text_metadata_arrives_and_binary_metadata_harms_nothing(
    client: str, start: Callable[[str], Started]
) -> None:
    command, identity = start(client)
    async with serving(identity) as (service, port):
        # The client ends with a fault: nothing brings its metadata back to it.
        await play(command, port, "custom_metadata")
    assert service.began[:1] == ["UnaryCall"]
    assert service.metadata["x-grpc-test-echo-initial"] == "test_initial_metadata_value"
    assert "x-grpc-test-echo-trailing-bin" not in service.metadata


@pytest.mark.parametrize("case", ["server_compressed_unary", "custom_metadata"])
@pytest.mark.parametrize("client", CLIENTS)
def test_cases_that_need_what_the_transport_lacks(client: str, case: str) -> None:
    lacks = {
        "server_compressed_unary": "the transport never compresses an answer",
        "custom_metadata": "the transport sends no metadata of a service with its answers, and reads text alone",
    }
    pytest.skip(f"{client}: {lacks[case]}")
