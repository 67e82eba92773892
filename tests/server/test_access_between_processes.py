"""Nameserver, broker and proxy with access control, each a process: one command tells all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from millstream.client.access import AccessOperations
from millstream.client.blocking import BlockingClient
from millstream.client.profiles import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
from millstream.model.errors import AccessRefused
from millstream.model.message import Message
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.access import PolicyEntryInfo, UserInfo
from millstream.security.signature import Credentials
from millstream.server.child import RoleProcess

pytestmark = pytest.mark.process


ROOT = Credentials("root", "secret-of-root")
ANN = Credentials("ann", "secret-of-ann")
SECURE = ("--set", "access.enabled=true")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The nameserver, and where clients of remoting come to the proxy."""
    environment = {ACCESS_KEY_VARIABLE: ROOT.access_key, SECRET_KEY_VARIABLE: ROOT.secret_key}
    with ExitStack() as running:

        def start(role: str, *options: str) -> dict[str, str]:
            process = RoleProcess(
                role,
                tmp_path / role,
                options=(*options, *SECURE),
                log=tmp_path / f"{role}.log",
                environment=environment,
            )
            return running.enter_context(process).addresses

        nameserver = start("nameserver", "--port", "0")["nameserver"]
        start("broker", "--port", "0", "--nameservers", nameserver)
        proxy = start("proxy", "--grpc-port", "0", "--remoting-port", "0", "--nameservers", nameserver)
        yield nameserver, proxy["remoting"]


def within(act: Callable[[], object], wanted: str | None, timeout_s: float = 20.0) -> None:
    """Do it again until it is refused by that name, or (None) done."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            act()
            found = None
        except AccessRefused as error:
            found = error.name
        if found == wanted:
            return
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)


def test_a_user_made_granted_and_revoked_by_one_command_each_is_so_at_the_proxy(site: tuple[str, str]) -> None:
    nameserver, proxy = site
    with BlockingClient(nameserver, credentials=ROOT) as admin, BlockingClient(proxy, credentials=ANN) as client:
        access = AccessOperations(admin.conversations)
        admin.create_topic(TopicConfig("orders"))

        def send() -> None:
            client.send(Message("orders", b"x"))

        with pytest.raises(AccessRefused) as refused:
            send()
        assert refused.value.name == "UNAUTHORIZED"
        admin.run(access.create_user(UserInfo(ANN.access_key, ANN.secret_key, "Normal")))
        within(send, "ACCESS_DENIED")
        admin.run(access.put_entries("ann", "Custom", [PolicyEntryInfo("Topic:orders", ["Pub"])]))
        within(send, None)
        admin.run(access.delete_entries("ann", "Custom", "Topic:orders"))
        within(send, "ACCESS_DENIED")
        admin.run(access.delete_user("ann"))
        within(send, "UNAUTHORIZED")
