"""What heartbeats and farewells of clients and of proxies mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from access_samples import sample_guard
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.heartbeats import ClientLiveness
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.model.clock import ManualClock
from millstream.model.errors import AccessRefused
from millstream.model.message import Address
from millstream.protocol.remoting.bodies import ConsumerData, HeartbeatData, ProducerData, encode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_connection import Connection


class Line:
    """Stands for a connection."""

    def __init__(self) -> None:
        self.peer = Address("10.0.0.1", 1)
        self.is_open = True
        self.on_close: list[Callable[[Connection], None]] = []

    def send(self, command: RemotingCommand) -> None: ...

    def close(self) -> None:
        for listener in self.on_close:
            listener(cast("Connection", self))


@pytest.fixture
def left() -> list[tuple[str, str, bool]]:
    return []


@pytest.fixture
def liveness(left: list[tuple[str, str, bool]]) -> ClientLiveness:
    consumers = ConsumerRegistry()
    consumers.on_leave.append(lambda *told: left.append(told))
    return ClientLiveness(ManualClock(), consumers, ProducerRegistry())


def beat(liveness: ClientLiveness, line: Line, client_id: str = "c", **ext: str) -> None:
    body = encode_body(HeartbeatData(client_id, [ProducerData("p")], [ConsumerData("g")]))
    command = RemotingCommand(RequestCode.HEART_BEAT, ext, body)
    data, groups = liveness.read(command)
    liveness.hear(command, data, cast("Connection", line), set(groups))


def farewell(liveness: ClientLiveness, line: Line, **ext: str) -> None:
    fields = {"clientID": "c", "consumerGroup": "g", "producerGroup": "p", **ext}
    liveness.unregister(RemotingCommand(RequestCode.UNREGISTER_CLIENT, fields), cast("Connection", line))


def test_a_client_is_gone_with_its_connection_and_one_of_a_proxy_only_from_here(
    liveness: ClientLiveness, left: list[tuple[str, str, bool]]
) -> None:
    direct, proxy = Line(), Line()
    beat(liveness, direct, "c1")
    beat(liveness, proxy, "c2", proxied="true")
    direct.close()
    proxy.close()
    assert left == [("g", "c1", True), ("g", "c2", False)]
    assert liveness.clients("g") == []


def test_who_says_farewell_is_gone_and_who_is_lost_may_live_on(
    liveness: ClientLiveness, left: list[tuple[str, str, bool]]
) -> None:
    line = Line()
    for ext in ({}, {"lost": "true"}):
        beat(liveness, line, proxied="true")
        farewell(liveness, line, proxied="true", **ext)
        assert liveness.producers.connection_of_client("c") is None
    assert left == [("g", "c", True), ("g", "c", False)]


def test_a_proxy_loses_no_client_that_is_at_another_one_by_now(liveness: ClientLiveness) -> None:
    before, after = Line(), Line()
    beat(liveness, before, proxied="true")
    beat(liveness, after, proxied="true")
    farewell(liveness, before, proxied="true", lost="true")
    assert liveness.clients("g") == ["c"]
    assert liveness.producers.connection_of_client("c") is cast("Connection", after)


def test_a_super_user_alone_says_whose_client_it_speaks_for(liveness: ClientLiveness, tmp_path: Path) -> None:
    liveness.producers.guard = sample_guard(tmp_path)
    beat(liveness, Line(), AccessKey="root", proxied="true", clientUser="ann")
    beat(liveness, Line(), AccessKey="ann")
    for ext in ({"AccessKey": "root", "clientUser": "bob"}, {"AccessKey": "bob", "clientUser": "ann"}):
        with pytest.raises(AccessRefused):
            beat(liveness, Line(), proxied="true", **ext)
