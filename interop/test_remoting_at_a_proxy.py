"""Clients of the remoting protocol at proxies before two brokers, each a process: they reach all queues, also those
clients that know of one broker only, a member of a group that is gone holds up nobody, and members at two proxies keep
order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import pytest

from interop.driver import Driver
from interop.orders import bodies_of, remoting_producer, remoting_push, send_all
from interop.server import Server
from millstream.server.child import RoleProcess

ROUNDS = 120


@pytest.fixture(scope="module")
def at_two_proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two proxies before two brokers."""
    folder: Path = tmp_path_factory.mktemp("proxied")
    with ExitStack() as running:

        def start(role: str, name: str, *options: str) -> dict[str, str]:
            log = folder / f"{name}.log"
            return running.enter_context(RoleProcess(role, folder / name, options=options, log=log)).addresses

        nameserver = start("nameserver", "ns", "--port", "0")["nameserver"]
        brokers = [
            start("broker", name, "--name", name, "--port", "0", "--nameservers", nameserver) for name in ("a", "b")
        ]
        ports = ("--grpc-port", "0", "--remoting-port", "0", "--nameservers", nameserver)
        one, other = (
            Server(nameserver, brokers[0]["broker"], proxy["grpc"], proxy["remoting"])
            for proxy in (start("proxy", "proxy-1", *ports), start("proxy", "proxy-2", *ports))
        )
        yield one, other


@pytest.fixture(scope="module")
def before_two(at_two_proxies: tuple[Server, Server]) -> Server:
    """A proxy before two brokers."""
    return at_two_proxies[0]


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


def test_members_at_two_proxies_share_queues_in_order(java: Driver, at_two_proxies: tuple[Server, Server]) -> None:
    topic, group = at_two_proxies[0].topic(queues=4), at_two_proxies[0].group(java.name)
    sender = remoting_producer(java, at_two_proxies[0])
    members = [remoting_push(java, server, topic, group, orderly=True) for server in at_two_proxies]
    keys = [f"customer-{number}" for number in range(8)]
    wanted: list[str] = []
    rounds = 0
    while rounds < ROUNDS and not all(java.events(one) for one in members):
        for key in keys:
            wanted.append(f"{key}/{rounds:03}")
            java.order("send", sender, message={"topic": topic, "body": wanted[-1], "group": key})
        rounds += 1
        time.sleep(0.5)
    assert all(java.events(one) for one in members)
    java.wait_until(lambda: {*bodies_of(java, *members)} >= {*wanted}, 60, lambda: sorted(wanted))
    java.order("close", members[0])
    java.order("send", sender, message={"topic": topic, "body": "customer-0/999", "group": keys[0]})
    java.wait_until(lambda: "customer-0/999" in bodies_of(java, members[1]), 90, lambda: bodies_of(java, members[1]))
    # What a member consumes while its queue is taken from it comes to the next one as well. But they never take turns:
    # a queue goes from one to the other when the second one comes, and back or on when the first one leaves.
    for key in keys:
        owners = [one for one, _ in groupby(member for member, body in java.told(*members) if body.startswith(key))]
        assert len(owners) <= 3, (key, owners)
    for member in members:
        for key in keys:
            order = [body for body in bodies_of(java, member) if body.startswith(key + "/")]
            assert order == sorted(order), order
    java.order("close", members[1])
    java.order("close", sender)


def test_a_transaction_that_was_left_open_is_ended_by_a_producer_at_another_proxy(
    java: Driver, at_two_proxies: tuple[Server, Server]
) -> None:
    one, other = at_two_proxies
    topic, group = one.topic("MIXED"), one.group(java.name)
    leaving = remoting_producer(java, one, group=f"makers-{group}", check="unknown")
    java.order("send", leaving, message={"topic": topic, "body": "half"}, transaction="leave")
    java.order("close", leaving)
    ending = remoting_producer(java, other, group=f"makers-{group}", check="commit")
    # A producer makes itself known where it sends.
    send_all(java, ending, topic, ["whole"])
    (asked,) = java.wait_for(ending, 1, "check", timeout_s=150)
    assert asked["body"] == "half"
    consumer = remoting_push(java, one, topic, group)
    assert {message["body"] for message in java.wait_for(consumer, 2)} == {"half", "whole"}
    java.order("close", consumer)
    java.order("close", ending)
