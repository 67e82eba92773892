"""`millstream group reset` of the groups behind a shared subscription of MQTT and a queue of AMQP."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Iterator

import pika
import pytest
from commands import Ran, run

from millstream.protocol.mqtt.packets import Publish
from millstream.server.child import ServerProcess
from patience import eventually
from proxy.mqtt.mqtt_peer import Peer, connect_to

pytestmark = pytest.mark.process

_OPTIONS = ("--mqtt-port", "0", "--amqp-port", "0", "--http-port", "off")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data", options=_OPTIONS) as process:
        yield process


def ask(server: ServerProcess, *words: str) -> Ran:
    return run(*words, "--nameserver", server.addresses.nameserver)


def port_of(server: ServerProcess, protocol: str) -> int:
    return int(server.addresses.protocols[protocol].rpartition(":")[2])


async def member(server: ServerProcess) -> Peer:
    peer = await connect_to(port_of(server, "mqtt"))
    await peer.connect()
    return peer


async def test_a_shared_subscription_gets_its_messages_again_from_an_offset_a_time_or_the_start(
    server: ServerProcess,
) -> None:
    worker, sender = await member(server), await member(server)
    await worker.subscribe("$share/workers/a/#", qos=1)
    await sender.publish("a/x", b"one", 1)
    await worker.receive()
    between_ms = time.time_ns() // 1_000_000 + 1
    await eventually(lambda: time.time_ns() // 1_000_000 > between_ms)
    await sender.publish("a/x", b"two", 1)
    await worker.receive()
    (row,) = (await asyncio.to_thread(ask, server, "group", "lag", "workers", "-o", "json")).json()  # type: ignore[misc]
    between = datetime.datetime.fromtimestamp(between_ms / 1000, datetime.UTC).isoformat()
    for to, bodies in (("earliest", [b"one", b"two"]), ("1", [b"two"]), (between, [b"two"])):
        words = ("group", "reset", "workers", "--topic", row["topic"], "--to", to, "--yes", "-o", "json")
        done = await asyncio.to_thread(ask, server, *words)
        assert done.code == 0, done.err
        assert [(await worker.receive()).payload for _ in bodies] == bodies, to
        await worker.expect_nothing()
    assert (await asyncio.to_thread(ask, server, "group", "reset", "workers", "--to", "latest", "--yes")).code == 0


async def test_what_a_member_holds_comes_again_after_a_reset(server: ServerProcess) -> None:
    worker, sender = await member(server), await member(server)
    await worker.subscribe("$share/holders/b/#", qos=1)
    await sender.publish("b/x", b"held", 1)
    await worker.expect(Publish)
    done = await asyncio.to_thread(ask, server, "group", "reset", "holders", "--to", "earliest", "--yes", "-o", "json")
    assert done.json()[0]["discarded"] == 1  # type: ignore[index]
    assert (await worker.receive()).payload == b"held"


def test_a_queue_of_amqp_gets_its_messages_again(server: ServerProcess) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", port_of(server, "amqp"))
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs")
        channel.confirm_delivery()
        for body in (b"one", b"two"):
            channel.basic_publish("", "jobs", body)
        for expected in (b"one", b"two"):
            method, _, body = channel.basic_get("jobs")
            assert body == expected
            channel.basic_ack(method.delivery_tag)
        assert ask(server, "group", "reset", "jobs", "--to", "earliest", "--yes").code == 0
        assert [channel.basic_get("jobs")[2] for _ in range(2)] == [b"one", b"two"]
        # What the channel holds is discarded, and its acknowledgement changes nothing.
        assert ask(server, "group", "reset", "jobs", "--to", "1", "--yes").code == 0
        channel.basic_ack(0, multiple=True)
        assert channel.basic_get("jobs")[2] == b"two"


def test_a_reset_of_no_light_queue_is_refused(server: ServerProcess) -> None:
    for words, code, said in (
        (("nobody", "--topic", "%LMQ%never", "--to", "earliest"), 1, "MS-2101"),
        (("CID_MQTT", "--topic", "%LMQ%never", "--to", "earliest"), 1, "MS-2101"),
        (("nobody", "--to", "earliest"), 1, "MS-22"),
    ):
        refused = ask(server, "group", "reset", *words, "--yes")
        assert (refused.code, refused.out) == (code, ""), words
        assert said in refused.err, words
        assert "Traceback" not in refused.err
