"""Official clients at proxies that are processes of their own, some of which are killed while they serve."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from official import ALL, configuration, message
from rocketmq import Producer, SimpleConsumer

from millstream.client.blocking import BlockingClient
from millstream.model.topic import TopicConfig
from millstream.server.child import RoleProcess

pytestmark = [pytest.mark.official, pytest.mark.kill]

INVISIBLE_S = 10
DEADLINE_S = 180


class Site:
    """A nameserver, brokers and proxies, each a process."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self._directory = directory
        self._running = running
        self.nameserver = self._start("nameserver", "ns", "--port", "0").addresses["nameserver"]

    def broker(self, name: str, port: str = "0") -> RoleProcess:
        return self._start("broker", name, "--name", name, "--port", port, "--nameservers", self.nameserver)

    def proxy(self, name: str) -> RoleProcess:
        ports = ("--grpc-port", "0", "--remoting-port", "0")
        return self._start("proxy", name, *ports, "--nameservers", self.nameserver)

    def create(self, topic: str) -> None:
        with BlockingClient(self.nameserver) as client:
            client.create_topic(TopicConfig(topic, read_queues=2, write_queues=2))

    def _start(self, role: str, name: str, *options: str) -> RoleProcess:
        process = RoleProcess(role, self._directory / name, options=options, log=self._directory / f"{name}.log")
        return self._running.enter_context(process)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as running:
        yield Site(tmp_path, running)


def port_of(proxy: RoleProcess) -> int:
    return int(proxy.addresses["grpc"].rpartition(":")[2])


class Consuming(threading.Thread):
    """A simple consumer at one proxy that acknowledges what it gets, until it is told to stop."""

    def __init__(self, port: int, got: dict[bytes, int]) -> None:
        super().__init__(daemon=True)
        self._consumer = SimpleConsumer(configuration(port), "team", {"orders": ALL}, await_duration=2)
        self._got = got
        self.stopping = threading.Event()

    def run(self) -> None:
        self._consumer.startup()
        while not self.stopping.is_set():
            try:
                for one in self._consumer.receive(4, INVISIBLE_S):
                    # Before the acknowledgement: one whose answer was lost with the proxy may have been taken, and
                    # then the message does not come again.
                    self._got[bytes(one.body)] = self._got.get(bytes(one.body), 0) + 1
                    self._consumer.ack(one)
            except Exception:  # noqa: BLE001 - its proxy was killed, as planned
                if self.stopping.wait(0.2):
                    return


def test_messages_at_several_proxies_and_brokers_survive_the_kill_of_a_proxy(site: Site) -> None:
    site.broker("a")
    site.broker("b")
    one, other = site.proxy("proxy-1"), site.proxy("proxy-2")
    site.create("orders")
    got: dict[bytes, int] = {}
    consuming = [Consuming(port_of(one), got), Consuming(port_of(other), got)]
    for thread in consuming:
        thread.start()
    producer = Producer(configuration(port_of(other)), ("orders",))
    producer.startup()
    sent = [b"m%d" % number for number in range(120)]
    for number, body in enumerate(sent):
        producer.send(message("orders", body))
        if number == len(sent) // 3:
            one.kill()
    deadline_s = time.monotonic() + DEADLINE_S
    while len(got) < len(sent) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    for thread in consuming:
        thread.stopping.set()
    producer.shutdown()
    assert set(sent) - got.keys() == set()


def test_a_broker_that_is_killed_and_started_again_is_found_again_by_its_proxy(site: Site) -> None:
    broker = site.broker("a")
    proxy = site.proxy("proxy-1")
    site.create("orders")
    producer = Producer(configuration(port_of(proxy)), ("orders",))
    producer.startup()
    producer.send(message("orders", b"before"))
    port = broker.addresses["broker"].rpartition(":")[2]
    broker.kill()
    with pytest.raises(Exception, match=r"MS-500\d|timeout|Deadline"):
        producer.send(message("orders", b"lost"))
    site.broker("a", port)
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        try:
            producer.send(message("orders", b"after"))
            break
        except Exception:  # noqa: BLE001 - the broker is not found again yet
            time.sleep(0.2)
    got: dict[bytes, int] = {}
    consuming = Consuming(port_of(proxy), got)
    consuming.start()
    while not {b"before", b"after"} <= got.keys() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    consuming.stopping.set()
    producer.shutdown()
    assert {b"before", b"after"} <= got.keys()


def test_the_remoting_port_serves_official_clients_as_well(site: Site) -> None:
    site.broker("a")
    proxy = site.proxy("proxy-1")
    site.create("orders")
    port = int(proxy.addresses["remoting"].rpartition(":")[2])
    producer = Producer(configuration(port), ("orders",))
    producer.startup()
    producer.send(message("orders", b"by the other port"))
    got: dict[bytes, int] = {}
    consuming = Consuming(port, got)
    consuming.start()
    deadline_s = time.monotonic() + DEADLINE_S
    while not got and time.monotonic() < deadline_s:
        time.sleep(0.1)
    consuming.stopping.set()
    producer.shutdown()
    assert set(got) == {b"by the other port"}
