"""The AMQP port as a socket sees it: what a client that breaks rules, reads nothing or says nothing gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_peer import HELLO, publication
from amqp_ports import AmqpSite, RawClient, running_amqp
from millstream.protocol.amqp.basic_methods import BasicAck, BasicConsume, BasicGet, ConfirmSelect, TxSelect
from millstream.protocol.amqp.frames import HEARTBEAT, METHOD, PROTOCOL_HEADER, frame, method_frame
from millstream.protocol.amqp.method_codec import AmqpMethod
from millstream.protocol.amqp.session_methods import (
    ChannelClose,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionStart,
)
from millstream.protocol.amqp.topology_methods import QueueDeclare, QueueDeclareOk
from millstream.proxy.amqp import server
from patience import eventually_blocking


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpSite]:
    with running_amqp(tmp_path_factory.mktemp("amqp")) as running:
        yield running


def test_a_client_of_another_protocol_gets_the_version_and_is_closed(site: AmqpSite) -> None:
    with RawClient(site, opens=False) as client:
        client.send(b"AMQP\x00\x01\x00\x00")
        assert client.socket.recv(100) == PROTOCOL_HEADER
        assert client.socket.recv(100) == b""


def test_what_comes_in_single_bytes_is_understood(site: AmqpSite) -> None:
    with RawClient(site, opens=False) as client:
        for byte in HELLO[0] + HELLO[1]:
            client.send(bytes((byte,)))
        assert isinstance(client.method(), ConnectionStart)


def test_a_frame_that_is_none_closes_the_connection_with_501(site: AmqpSite) -> None:
    with RawClient(site) as client:
        client.send(frame(METHOD, 1, b"\x00\x0a\x00\x0a")[:-1] + b"\x00")
        close = client.method()
        assert isinstance(close, ConnectionClose)
        assert close.reply_code == 501
        client.send(method_frame(0, ConnectionCloseOk()))
        with pytest.raises(EOFError):
            client.frame()


def test_a_client_that_does_not_answer_a_close_is_cut_off(site: AmqpSite) -> None:
    with RawClient(site) as client:
        close = client.ask(TxSelect())
        assert isinstance(close, ConnectionClose)
        assert (close.reply_code, close.failed_class, close.failed_method) == (540, 90, 10)
        with pytest.raises(EOFError):
            client.frame()


def test_heartbeats_come_and_a_silent_client_is_cut_off(site: AmqpSite) -> None:
    with RawClient(site, heartbeat_s=1) as client:
        assert client.frame()[0] == HEARTBEAT
        with pytest.raises((EOFError, ConnectionResetError)):
            [client.frame() for _ in range(100)]


def test_a_method_that_waits_holds_back_what_follows_it(site: AmqpSite) -> None:
    with RawClient(site) as client:
        client.ask(ConfirmSelect())
        declare = method_frame(1, QueueDeclare(queue="pipelined"))
        ask = method_frame(1, QueueDeclare(queue="pipelined", passive=True))
        client.send(declare + publication(1, b"x", exchange="", key="pipelined") * 3 + ask)
        found: list[AmqpMethod] = []
        while len([one for one in found if isinstance(one, QueueDeclareOk)]) < 2:
            found.append(client.method())
        assert found[0] == QueueDeclareOk("pipelined", 0, 0)
        assert found[-1] == QueueDeclareOk("pipelined", 3, 0)
        assert BasicAck(3, True) in found


def test_a_consumer_that_reads_nothing_takes_no_memory_of_the_server(site: AmqpSite) -> None:
    count, size = 64, 256 * 1024
    with RawClient(site) as writer, RawClient(site) as reader:
        writer.ask(QueueDeclare(queue="unread"))
        writer.ask(ConfirmSelect())
        for _ in range(count):
            writer.send(publication(1, b"x" * size, exchange="", key="unread"))
        tags = 0
        while tags < count:
            ack = writer.method()
            assert isinstance(ack, BasicAck)
            tags = ack.delivery_tag
        reader.send(method_frame(1, BasicConsume(queue="unread", no_ack=True)))
        connections = site.server._connections

        def is_unread() -> bool:
            return any(connection.session.is_unread for connection in list(connections))

        eventually_blocking(is_unread)
        held = max(connection._measure_unread() for connection in list(connections))
        # What was on its way when the client stopped to read: a handful of the messages.
        assert held < count * size // 8
        found = 0
        while found < count * size:
            kind, _, payload = reader.frame()
            found += len(payload) if kind == 3 else 0


def test_half_messages_of_few_kilobytes_count_in_the_memory_of_all_connections(site: AmqpSite) -> None:
    size = 20_000
    whole = publication(1, b"x" * size, exchange="", key="half")
    with RawClient(site) as one, RawClient(site) as other:
        one.send(whole[:-100])
        other.send(whole[:-100])
        eventually_blocking(lambda: site.server.memory.frames.used_bytes >= 2 * (size - 100))
        one.send(whole[-100:])
        eventually_blocking(lambda: site.server.memory.frames.used_bytes <= size + 100)
    eventually_blocking(lambda: site.server.memory.frames.used_bytes == 0)


def test_the_channel_of_a_failed_method_can_be_opened_again(site: AmqpSite) -> None:
    with RawClient(site) as client:
        for _ in range(2):
            client.send(method_frame(1, BasicGet(queue="missing")) + method_frame(1, BasicGet(queue="missing")))
            close = client.method()
            assert isinstance(close, ChannelClose)
            assert (close.reply_code, close.failed_class, close.failed_method) == (404, 60, 70)
            client.send(method_frame(1, ChannelClose()))
            client.method()
            client.send(frame(METHOD, 1, b"\x00\x14\x00\x29") + method_frame(1, ChannelOpen()))
            client.method()


def test_clients_are_told_that_the_server_stops(tmp_path: Path) -> None:
    with running_amqp(tmp_path) as site:
        client = RawClient(site)
    close = client.method()
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 320
    client.socket.close()


def test_connections_over_the_limit_are_closed(site: AmqpSite, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawClient(site):
        monkeypatch.setattr(server, "MAX_CONNECTIONS", site.server.connections)
        with RawClient(site, opens=False) as client:
            client.send(HELLO[0])
            with pytest.raises((EOFError, ConnectionResetError)):
                client.frame()
