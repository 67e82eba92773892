"""The official Python client under access control and TLS, against the server as users start it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from official import drain, message
from rocketmq import ClientConfiguration, Credentials, FilterExpression, Producer, SimpleConsumer

from certificates import needs_openssl
from millstream.client.access import AccessOperations
from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.access import PolicyEntryInfo, UserInfo
from millstream.security import signature
from millstream.server.child import ServerProcess

pytestmark = [pytest.mark.official, needs_openssl]

SECRET = "secret-of-ann"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secure") / "data"


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[ServerProcess]:
    """The user ann may send to `orders` and consume it as `billing`."""
    with ServerProcess(directory, options=["--secure", "--tls", "permissive"]) as process:
        lines = (directory / "credentials").read_text().splitlines()
        keys = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        admin = signature.Credentials(keys["MILLSTREAM_ACCESS_KEY"], keys["MILLSTREAM_SECRET_KEY"])
        with BlockingClient(process.addresses.nameserver, credentials=admin) as client:
            client.create_topic(TopicConfig("orders"))
            client.create_topic(TopicConfig("others"))
            access = AccessOperations(client.conversations)
            client.run(access.create_user(UserInfo("ann", SECRET)))
            entries = [PolicyEntryInfo("Topic:orders", ["Pub", "Sub"]), PolicyEntryInfo("Group:billing", ["Sub"])]
            client.run(access.put_entries("ann", "Custom", entries))
        yield process


def configuration(server: ServerProcess, secret: str = SECRET, name: str = "ann") -> Any:
    return ClientConfiguration(server.addresses.grpc, Credentials(name, secret))


def test_a_user_with_the_right_secret_sends_and_consumes(server: ServerProcess) -> None:
    producer = Producer(configuration(server), ("orders",))
    producer.startup()
    consumer = SimpleConsumer(configuration(server), "billing", {"orders": FilterExpression("*")}, await_duration=3)
    consumer.startup()
    try:
        sent = producer.send(message("orders", b"signed"))
        (received,) = drain(consumer, 1)
        assert received.message_id == sent.message_id
    finally:
        consumer.shutdown()
        producer.shutdown()


@pytest.mark.parametrize(
    ("name", "secret", "topic", "code"),
    [("ann", "wrong-secret", "orders", "40100"), ("eve", SECRET, "orders", "40100"), ("", "", "orders", "40100"),
     ("ann", SECRET, "others", "40300")],
)  # fmt: skip
def test_a_user_without_the_right_to_it_cannot_send_and_its_log_says_why(
    server: ServerProcess, caplog: pytest.LogCaptureFixture, name: str, secret: str, topic: str, code: str
) -> None:
    producer = Producer(configuration(server, secret, name), (topic,))
    producer.startup()
    try:
        with pytest.raises(Exception, match="failed to fetch topic"):
            producer.send(message(topic, b"refused"))
    finally:
        producer.shutdown()
    assert f"query topic raise exception, {code}" in caplog.text


OVER_TLS = """
import sys
from rocketmq import ClientConfiguration, Credentials, Message, Producer
producer = Producer(ClientConfiguration(sys.argv[1], Credentials("ann", sys.argv[2])), ("orders",), tls_enable=True)
producer.startup()
message = Message()
message.topic, message.body = "orders", b"over TLS"
print(producer.send(message).message_id)
producer.shutdown()
"""


def test_the_official_client_speaks_tls_on_the_same_port(server: ServerProcess, directory: Path) -> None:
    # In a process of its own: gRPC reads the file of trusted certificates once.
    trusted = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(directory / "tls" / "certificate.pem")}
    ran = subprocess.run(
        [sys.executable, "-c", OVER_TLS, server.addresses.grpc, SECRET],
        env={**os.environ, **trusted}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("01")
