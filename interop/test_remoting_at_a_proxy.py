"""Clients of the remoting protocol at a proxy before two brokers, each a process: the scenarios that they play at a
broker, and what a proxy adds: a member of a group that is stuck holds up nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop.driver import Driver
from interop.orders import bodies_of, remoting_producer, remoting_push, send_all
from interop.server import Server
from interop.test_remoting_messages import (
    test_a_message_is_consumed_as_it_was_sent,
    test_each_message_is_consumed_once_by_a_group_and_goes_on_where_a_closed_one_stopped,
    test_what_fails_comes_again_with_one_attempt_more_and_is_set_aside_at_last,
)
from millstream.server.child import RoleProcess, ServerAddresses

__all__ = [
    "test_a_message_is_consumed_as_it_was_sent",
    "test_each_message_is_consumed_once_by_a_group_and_goes_on_where_a_closed_one_stopped",
    "test_what_fails_comes_again_with_one_attempt_more_and_is_set_aside_at_last",
]


@dataclass
class Processes:
    """What a server of the scenarios needs to know of its processes."""

    addresses: ServerAddresses


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """In the place of the merged server: whose remoting clients know the proxy alone."""
    folder: Path = tmp_path_factory.mktemp("proxied")
    with ExitStack() as running:

        def start(role: str, name: str, *options: str) -> RoleProcess:
            return running.enter_context(RoleProcess(role, folder / name, options=options, log=folder / f"{name}.log"))

        nameserver = start("nameserver", "ns", "--port", "0").addresses["nameserver"]
        brokers = [
            start("broker", name, "--name", name, "--port", "0", "--nameservers", nameserver) for name in ("a", "b")
        ]
        proxy = start("proxy", "proxy", "--grpc-port", "0", "--remoting-port", "0", "--nameservers", nameserver)
        addresses = ServerAddresses(nameserver, brokers[0].addresses["broker"], proxy.addresses["grpc"], None)
        found = Server(Processes(addresses))  # type: ignore[arg-type]
        found.remoting = proxy.addresses["remoting"]
        yield found


def test_a_member_that_is_gone_without_a_word_holds_up_nobody(
    java: Driver, drivers: Callable[[str], Driver], server: Server, tmp_path: Path
) -> None:
    topic, group = server.topic(), server.group(java.name)
    doomed = Driver.start(java.name, tmp_path / "doomed.log")
    sender = remoting_producer(java, server)
    first = remoting_push(doomed, server, topic, group)
    second = remoting_push(java, server, topic, group)
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
