"""Who speaks HTTP/2, told by the first bytes of a connection."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.transport.remoting_server import offers_http2, speaks_http2

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def hello(*protocols: str) -> bytes:
    """What a TLS client says first, record header and all."""
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(list(protocols))
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="queues.example.com")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("protocols", "offered"), [(("h2",), True), (("http/1.1", "h2"), True), (("http/1.1", "h22"), False), ((), False)]
)
def test_a_hello_tells_whether_its_client_speaks_http2(protocols: tuple[str, ...], offered: bool) -> None:
    assert offers_http2(hello(*protocols)[5:]) is offered


HELLO = hello("h2")[5:]


@given(st.binary(max_size=400))
def test_no_bytes_are_too_strange_to_look_at(data: bytes) -> None:
    assert offers_http2(data) in (True, False)


@given(st.data())
def test_a_hello_that_is_cut_or_changed_is_looked_at_all_the_same(data: st.DataObject) -> None:
    whole = bytearray(HELLO)
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    assert offers_http2(bytes(whole[: data.draw(st.integers(0, len(whole)))])) in (True, False)


@pytest.mark.parametrize(
    ("first", "is_tls", "expected"),
    [(PREFACE, False, True), (b"\x00\x00\x01\x00", False, False), (hello("h2"), True, True), (hello(), True, False)],
)
async def test_what_is_looked_at_stays_where_it_is(first: bytes, is_tls: bool, expected: bool) -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(first)
        assert await speaks_http2(near, is_tls) is expected
        assert near.recv(len(first) + 1) == first


async def test_a_hello_in_two_parts_is_waited_for() -> None:
    near, far = socket.socketpair()
    with near, far:
        whole = hello("h2")
        far.sendall(whole[:100])
        looking = asyncio.create_task(speaks_http2(near, True))
        await asyncio.sleep(0)
        assert not looking.done()
        far.sendall(whole[100:])
        assert await looking


async def test_who_closes_within_a_hello_is_let_go() -> None:
    near, far = socket.socketpair()
    with near:
        far.close()
        with pytest.raises(ConnectionResetError):
            await speaks_http2(near, True)
