"""Clients of the remoting protocol at a proxy before two brokers, each a process: they reach all queues, also those
clients that know of one broker only, and a member of a group that is gone holds up nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop.driver import Driver
from interop.orders import bodies_of, remoting_producer, remoting_push, send_all
from interop.server import Server
from millstream.server.child import RoleProcess


@pytest.fixture(scope="module")
def before_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A proxy before two brokers."""
    folder: Path = tmp_path_factory.mktemp("proxied")
    with ExitStack() as running:

        def start(role: str, name: str, *options: str) -> dict[str, str]:
            log = folder / f"{name}.log"
            return running.enter_context(RoleProcess(role, folder / name, options=options, log=log)).addresses

        nameserver = start("nameserver", "ns", "--port", "0")["nameserver"]
        brokers = [
            start("broker", name, "--name", name, "--port", "0", "--nameservers", nameserver) for name in ("a", "b")
        ]
        proxy = start("proxy", "proxy", "--grpc-port", "0", "--remoting-port", "0", "--nameservers", nameserver)
        yield Server(nameserver, brokers[0]["broker"], proxy["grpc"], proxy["remoting"])


def test_the_messages_of_both_brokers_are_consumed_once_each(remoting: Driver, before_two: Server) -> None:
    topic, group = before_two.topic(), before_two.group(remoting.name)
    sender = remoting_producer(remoting, before_two)
    consumer = remoting_push(remoting, before_two, topic, group, fail={"m3": 1})
    sent = [f"m{number}" for number in range(24)]
    send_all(remoting, sender, topic, sent)
    told = remoting.wait_for(consumer, len(sent) + 1, timeout_s=90)
    assert sorted(message["body"] for message in told) == sorted([*sent, "m3"])
    assert {message["attempt"] for message in told if message["body"] == "m3"} == {1, 2}
    remoting.order("close", consumer)
    remoting.order("close", sender)


def test_a_member_that_is_gone_without_a_word_holds_up_nobody(
    java: Driver, drivers: Callable[[str], Driver], before_two: Server, tmp_path: Path
) -> None:
    topic, group = before_two.topic(), before_two.group(java.name)
    doomed = Driver.start(java.name, tmp_path / "doomed.log")
    sender = remoting_producer(java, before_two)
    first = remoting_push(doomed, before_two, topic, group)
    second = remoting_push(java, before_two, topic, group)
    send_all(java, sender, topic, [f"a{number}" for number in range(20)])
    java.wait_until(
        lambda: {*bodies_of(doomed, first), *bodies_of(java, second)} >= {f"a{number}" for number in range(20)},
        60,
        lambda: (bodies_of(doomed, first), bodies_of(java, second)),
    )
    doomed.kill()
    wanted = {f"b{number}" for number in range(20)}
    send_all(java, sender, topic, sorted(wanted))
    java.wait_until(lambda: set(bodies_of(java, second)) >= wanted, 60, lambda: bodies_of(java, second))
    java.order("close", second)
    java.order("close", sender)
