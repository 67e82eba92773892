"""ali-ons, a client of the remoting protocol in plain JavaScript, where Node.js and npm are there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from interop.driver import Driver, Missing
from interop.orders import remoting_producer, remoting_push, send_all
from interop.server import Server

from millstream.server.child import ServerProcess

pytestmark = pytest.mark.official


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ServerProcess(tmp_path_factory.mktemp("ali-ons") / "data") as process:
        yield Server.of(process)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    try:
        running = Driver.start("ali-ons", tmp_path_factory.mktemp("driver") / "errors.log")
    except Missing as missing:
        pytest.skip(f"ali-ons cannot run here: {missing}")
    yield running
    running.stop()


def test_ali_ons_consumes_what_it_sends_with_tag_keys_and_properties(driver: Driver, server: Server) -> None:
    topic, group = server.topic(), server.group("ali-ons")
    consumer = remoting_push(driver, server, topic, group, filter="blue")
    sender = remoting_producer(driver, server)
    send_all(driver, sender, topic, ["red one"], tag="red")
    send_all(driver, sender, topic, ["blue one"], tag="blue", keys=["k1", "k2"], properties={"farbe": "grün"})
    (message,) = driver.wait_for(consumer, 1)
    assert (message["body"], message["tag"], message["keys"]) == ("blue one", "blue", ["k1", "k2"])
    assert message["properties"]["farbe"] == "grün"
    driver.order("close", consumer)
    driver.order("close", sender)


def test_ali_ons_gets_what_it_sent_back_again_and_not_what_it_consumed(driver: Driver, server: Server) -> None:
    topic, group = server.topic(), server.group("ali-ons", max_attempts=3)
    consumer = remoting_push(driver, server, topic, group, fail={"twice": 2}, attempts=3)
    sender = remoting_producer(driver, server)
    send_all(driver, sender, topic, ["twice", "never"])
    told = driver.wait_for(consumer, 4)
    assert sorted((message["body"], message["attempt"]) for message in told) == [
        ("never", 1), ("twice", 1), ("twice", 2), ("twice", 3),
    ]  # fmt: skip
    driver.order("close", consumer)
    driver.order("close", sender)
