"""What every method has in common: the client id, failures as statuses, methods that are not offered."""

from __future__ import annotations

import logging

import pytest
from memory_backend import MemoryBackend, store_failed
from service_calls import METADATA, Service, message

from millstream.model.catalogue import CATALOGUE
from millstream.model.errors import MillstreamError
from millstream.model.message import Address
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS
from millstream.proxy.grpc.call import GrpcCall
from millstream.proxy.grpc.status import CODES, status_of


async def answer_of(service: Service, name: str) -> object:
    method = METHODS[name]
    if method.server_streams:
        (frame,) = await service.frames(name, method.request())
        return frame.status
    return (await service.call(name, method.request())).status


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"Telemetry"}))
async def test_every_method_needs_a_client_id(service: Service, name: str) -> None:
    service.metadata = {}
    assert (await answer_of(service, name)).code == m.CLIENT_ID_REQUIRED


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"Telemetry"}))
async def test_every_method_is_offered_and_an_empty_request_gets_a_code(service: Service, name: str) -> None:
    assert (await answer_of(service, name)).code not in (m.CODE_UNSPECIFIED, m.NOT_IMPLEMENTED)


async def test_an_unforeseen_error_shows_its_number_to_the_client_and_its_details_to_the_log(
    service: Service, backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend.failure = KeyError("secret-detail")
    answer = await service.call("SendMessage", m.SendMessageRequest(messages=[message()]))
    assert answer.status.code == m.INTERNAL_SERVER_ERROR
    assert "MS-1006" in answer.status.message
    assert "secret-detail" not in answer.status.message
    assert "secret-detail" in caplog.text


async def test_a_failing_store_is_a_server_error_with_its_own_words(
    service: Service, backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend.failure = store_failed()
    answer = await service.send()
    assert answer.status.code == m.INTERNAL_SERVER_ERROR
    assert "The log cannot be written." in answer.status.message
    assert "The log cannot be written." in caplog.text


async def test_a_refusal_is_not_logged_as_a_failure(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await service.send("missing")
    assert caplog.records == []


def test_every_code_stands_for_a_row_of_the_catalogue_and_none_is_unset() -> None:
    assert set(CODES) <= set(CATALOGUE)
    assert all(code > m.OK for code in CODES.values())


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_every_row_of_the_catalogue_has_a_status_that_clients_know(name: str) -> None:
    status = status_of(MillstreamError(name, "What happened."), "orders")
    assert m.Code.DESCRIPTOR.values_by_number[status.code].number >= 40000
    assert "What happened." in status.message


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("192.0.2.7:50312", Address("192.0.2.7", 50312)),
        ("[2001:db8::1]:80", Address("2001:db8::1", 80)),
        ("[fe80::1%eth0]:80", Address("fe80::1", 80)),
        ("", Address("127.0.0.1", 0)),
        ("/run/socket", Address("127.0.0.1", 0)),
    ],
)
def test_the_callers_address_is_read_as_the_transport_writes_it(text: str, peer: Address) -> None:
    assert GrpcCall.of(METADATA | {"rpc-remote-address": text}, 1.0).peer == peer
