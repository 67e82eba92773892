"""Errors of AMQP as clients get them: each by its code, hard ones for the connection and soft ones for the channel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amqp_ports import AmqpSite, RawClient, running_amqp
from millstream.model.errors import ConnectionFailed, ConsumeRefused, MessageRefused, NameRefused
from millstream.protocol.amqp.basic_methods import BasicConsume, BasicGet, BasicPublish, BasicQos, BasicRecover
from millstream.protocol.amqp.content import NO_PROPERTIES
from millstream.protocol.amqp.frames import BODY, CONTENT_HEADER, HEADER, content_frames, frame, method_frame
from millstream.protocol.amqp.method_codec import AmqpMethod, encode_method
from millstream.protocol.amqp.session_methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
)
from millstream.protocol.amqp.topology_methods import QueueDeclare, QueueDeclareOk
from millstream.proxy.amqp.refusals import channel_failure


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpSite]:
    with running_amqp(tmp_path_factory.mktemp("amqp")) as running:
        yield running


def declared(client: RawClient, wish: QueueDeclare) -> str:
    answer = client.ask(wish)
    assert isinstance(answer, QueueDeclareOk)
    return answer.queue


IMMEDIATE = content_frames(1, encode_method(BasicPublish(immediate=True)), NO_PROPERTIES, b"x", 131_072)
BAD_TABLE = frame(1, 1, encode_method(QueueDeclare(queue="q"))[:-4] + b"\0\0\0\x03\x01a?")
BODY_BEFORE_HEADER = method_frame(1, BasicPublish()) + frame(BODY, 1, b"x")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (method_frame(1, BasicQos())[:-1] + b"\0", 501),
        (b"\x01\x00\x01\x7f\xff\xff\xff\x00", 501),
        (BAD_TABLE, 502),
        (frame(1, 1, b"\0\x63\0\x63"), 503),
        (method_frame(7, BasicQos()), 504),
        (BODY_BEFORE_HEADER, 505),
        (IMMEDIATE, 540),
        (method_frame(1, BasicQos(prefetch_bytes=1)), 540),
        (method_frame(1, BasicRecover(requeue=False)), 540),
    ],
)
def test_a_hard_error_ends_the_connection_with_its_code(site: AmqpSite, data: bytes, code: int) -> None:
    with RawClient(site) as client:
        client.send(data)
        close = client.method()
        assert isinstance(close, ConnectionClose)
        assert close.reply_code == code
        assert close.reply_text


def test_a_consumer_tag_that_is_there_ends_the_connection_with_530(site: AmqpSite) -> None:
    with RawClient(site) as client:
        name = declared(client, QueueDeclare(exclusive=True))
        client.ask(BasicConsume(queue=name, consumer_tag="t"))
        close = client.ask(BasicConsume(queue=name, consumer_tag="t"))
        assert isinstance(close, ConnectionClose)
        assert close.reply_code == 530


def soft_code(client: RawClient, data: bytes) -> int:
    """The code with which the channel ends; the connection goes on, and so does the channel once it is opened again."""
    client.send(data)
    close = client.method()
    assert isinstance(close, ChannelClose)
    client.send(method_frame(1, ChannelCloseOk()))
    assert isinstance(client.ask(ChannelOpen()), ChannelOpenOk)
    assert declared(client, QueueDeclare(exclusive=True))
    return close.reply_code


def test_a_queue_that_another_consumer_has_for_itself_is_refused_with_403(site: AmqpSite) -> None:
    with RawClient(site) as one, RawClient(site) as other:
        name = declared(one, QueueDeclare(queue="alone"))
        one.ask(BasicConsume(queue=name, exclusive=True))
        assert soft_code(other, method_frame(1, BasicConsume(queue=name))) == 403
        shared = declared(one, QueueDeclare(queue="shared"))
        one.ask(BasicConsume(queue=shared))
        assert soft_code(other, method_frame(1, BasicConsume(queue=shared, exclusive=True))) == 403


def test_an_exclusive_queue_of_another_connection_is_refused_with_405(site: AmqpSite) -> None:
    with RawClient(site) as one, RawClient(site) as other:
        name = declared(one, QueueDeclare(exclusive=True))
        wishes: list[AmqpMethod] = [
            QueueDeclare(queue=name, passive=True),
            QueueDeclare(queue=name),
            BasicConsume(queue=name),
            BasicGet(queue=name),
        ]
        for wish in wishes:
            assert soft_code(other, method_frame(1, wish)) == 405


def test_a_body_over_the_limit_is_refused_with_311_before_it_is_there(site: AmqpSite) -> None:
    head = CONTENT_HEADER.pack(60, 0, 4 * 1024 * 1024 + 1) + NO_PROPERTIES
    with RawClient(site) as client:
        publish = method_frame(1, BasicPublish(exchange="amq.topic"))
        assert soft_code(client, publish + frame(HEADER, 1, head)) == 311


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MessageRefused("BODY_TOO_LARGE", "x"), 311),
        (MessageRefused("PROPERTIES_TOO_LARGE", "x"), 311),
        (NameRefused("TOPIC_NOT_FOUND", "x"), 404),
        (NameRefused("QUEUE_NOT_FOUND", "x"), 404),
        (ConsumeRefused("INVALID_RECEIPT_HANDLE", "x"), 406),
        (ConnectionFailed("UNREACHABLE", "x"), 506),
    ],
)
def test_what_a_broker_refuses_has_a_code(error: NameRefused, code: int) -> None:
    assert channel_failure(error).code == code
