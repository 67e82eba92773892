"""Who may connect to the AMQP port, and what its users may do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from access_samples import ANN, BOB, ROOT, sample_guard
from amqp_ports import AmqpSite, running_amqp
from certificates import identity_in, needs_openssl, trusting
from millstream.proxy.amqp.access import Login, read_login
from millstream.security.policy import PolicyEntry
from millstream.security.signature import Credentials
from millstream.security.tls import TlsMode
from patience import eventually_blocking

pika = pytest.importorskip("pika")

from pika import exceptions  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AmqpSite]:
    directory = tmp_path_factory.mktemp("amqp")
    users = tmp_path_factory.mktemp("users")
    with running_amqp(directory, guard=lambda _: sample_guard(users)) as running:
        yield running


def connect(site: AmqpSite, user: Credentials, **more: Any) -> Any:
    credentials = pika.PlainCredentials(user.access_key, user.secret_key)
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", site.port, credentials=credentials, **more))


def code_of(call: Any, *arguments: Any, **more: Any) -> int:
    with pytest.raises(exceptions.ChannelClosedByBroker) as error:
        call(*arguments, **more)
    return int(error.value.reply_code)


def test_a_wrong_secret_is_refused(site: AmqpSite) -> None:
    for user in (Credentials("ann", "wrong"), Credentials("nobody", "x")):
        with pytest.raises(exceptions.ProbableAuthenticationError, match="403"):
            connect(site, user)


def test_users_do_what_their_policies_say_and_nothing_else(site: AmqpSite) -> None:
    root = connect(site, ROOT)
    channel = root.channel()
    channel.exchange_declare("orders", "topic", durable=True)
    channel.exchange_declare("secrets", "topic", durable=True)
    channel.queue_declare("billing", durable=True)
    channel.queue_bind("billing", "orders", "#")
    ann = connect(site, ANN)
    channel = ann.channel()
    channel.confirm_delivery()
    channel.basic_publish("orders", "new", b"ours", mandatory=True)
    _, _, body = channel.basic_get("billing", auto_ack=True)
    assert body == b"ours"
    refused = [
        lambda ch: ch.basic_publish("secrets", "new", b"x"),
        lambda ch: ch.queue_declare("billing-2"),
        lambda ch: ch.exchange_declare("billing-2", "topic"),
        lambda ch: ch.queue_delete("billing"),
        lambda ch: ch.exchange_delete("orders"),
        lambda ch: ch.queue_bind("billing", "secrets", "#"),
    ]
    for call in refused:
        channel = ann.channel()
        channel.confirm_delivery()
        assert code_of(call, channel) == 403
    bob = connect(site, BOB)
    assert code_of(bob.channel().basic_consume, "billing", lambda *_: None) == 403
    assert code_of(bob.channel().basic_get, "billing") == 403
    for connection in (root, ann, bob):
        connection.close()


def test_a_consumer_ends_when_its_user_may_not_consume_any_more(site: AmqpSite) -> None:
    root = connect(site, ROOT)
    root.channel().queue_declare("shop", durable=True)
    book = site.server.shared.access._guard.book  # type: ignore[union-attr]
    grant = [PolicyEntry.read("Group:shop", ["Sub"], [], "Allow")]
    site.call(lambda: book.put_entries("bob", grant))
    bob = connect(site, BOB)
    channel = bob.channel()
    cancelled: list[Any] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume("shop", lambda *_: None)
    site.call(lambda: book.delete_entries("bob"))

    def is_cancelled() -> bool:
        bob.process_data_events(0.01)
        return bool(cancelled)

    eventually_blocking(is_cancelled)
    site.call(lambda: book.delete_user("bob"))

    def is_closed() -> bool:
        bob.process_data_events(0.01)
        return False

    with pytest.raises(exceptions.ConnectionClosedByBroker, match="403"):
        eventually_blocking(is_closed)
    root.close()


@needs_openssl
def test_tls_and_plaintext_are_answered_on_the_same_port(tmp_path: Path) -> None:
    identity, files = identity_in(tmp_path)
    with running_amqp(tmp_path / "broker", tls=(identity, TlsMode.PERMISSIVE)) as site:
        options = pika.SSLOptions(trusting(files), "127.0.0.1")
        for more in ({"ssl_options": options}, {}):
            connection = connect(site, Credentials("guest", "guest"), **more)
            assert connection.channel().queue_declare("", exclusive=True).method.queue.startswith("amq.gen-")
            connection.close()


@needs_openssl
def test_plaintext_is_refused_where_tls_is_required(tmp_path: Path) -> None:
    identity, _ = identity_in(tmp_path)
    running = running_amqp(tmp_path / "broker", tls=(identity, TlsMode.REQUIRED))
    with running as site, pytest.raises(exceptions.AMQPConnectionError):
        connect(site, Credentials("guest", "guest"))


@pytest.mark.parametrize(
    ("mechanism", "response", "expected"),
    [
        ("PLAIN", b"\0user\0secret", Login("user", "secret")),
        ("PLAIN", b"other\0user\0", Login("user", "")),
        ("PLAIN", b"user\0secret", None),
        ("PLAIN", b"\0\xff\0secret", None),
        ("AMQPLAIN", b"\5LOGINS\0\0\0\1u\x08PASSWORDS\0\0\0\1s", Login("u", "s")),
        ("AMQPLAIN", b"\5LOGINS\0\0\0\1u", None),
        ("AMQPLAIN", b"\5LOGIN", None),
        ("EXTERNAL", b"", None),
    ],
)
def test_logins_are_read_by_their_mechanisms(mechanism: str, response: bytes, expected: Login | None) -> None:
    assert read_login(mechanism, response) == expected
