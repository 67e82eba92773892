"""Members of a shared subscription at two proxies in processes of their own, one of which is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from millstream.protocol.mqtt.packets import Publish
from millstream.server.child import RoleProcess
from proxy.mqtt.mqtt_peer import Peer, connect_to

pytestmark = pytest.mark.kill


@pytest.fixture
def proxies(tmp_path: Path) -> Iterator[list[RoleProcess]]:
    with ExitStack() as running:

        def start(role: str, name: str, *options: str) -> RoleProcess:
            log = tmp_path / f"{name}.log"
            return running.enter_context(RoleProcess(role, tmp_path / name, options=options, log=log))

        nameserver = start("nameserver", "ns", "--port", "0").addresses["nameserver"]
        start("broker", "b", "--name", "b", "--port", "0", "--nameservers", nameserver)
        known = ("--grpc-port", "0", "--remoting-port", "-1", "--mqtt-port", "0", "--nameservers", nameserver)
        yield [start("proxy", name, *known) for name in ("p1", "p2")]


async def connect(proxy: RoleProcess, client_id: str = "", *, expiry_s: int = 0) -> tuple[Peer, bool]:
    """A client, and whether its session was there."""
    peer = await connect_to(int(proxy.addresses["mqtt"].rpartition(":")[2]))
    answer = await peer.connect(client_id, clean_start=not expiry_s, expiry_s=expiry_s)
    return peer, answer.session_present


async def test_what_a_killed_proxy_sent_is_completed_with_its_member_and_goes_to_nobody_else(
    proxies: list[RoleProcess],
) -> None:
    first, _ = await connect(proxies[0], "member", expiry_s=3600)
    await first.subscribe("$share/g/a/#", qos=2)
    sender, _ = await connect(proxies[1])
    await sender.publish("a/x", b"one", 2)
    sent = await first.expect(Publish)
    other, _ = await connect(proxies[1])
    await other.subscribe("$share/g/a/#", qos=2)
    proxies[0].kill()
    await sender.publish("a/x", b"two", 2)
    assert (await other.receive()).payload == b"two"
    again, is_present = await connect(proxies[1], "member", expiry_s=3600)
    assert is_present
    repeated = await again.receive()
    assert (repeated.payload, repeated.packet_id, repeated.dup) == (b"one", sent.packet_id, True)
    await other.expect_nothing()
