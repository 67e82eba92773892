"""The ports of a proxy for further protocols: opened where they are wanted, and left where somebody has them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from millstream.model.errors import StartRefused
from millstream.proxy.backend import BrokerBackend
from millstream.proxy.processor import Processor
from millstream.server.all_in_one import AllInOne, AllInOneOptions
from millstream.server.deferred_port import ProtocolPort
from millstream.server.protocol_ports import WantedPort, amqp_port, http_port, mqtt_port
from millstream.server.site import Site
from millstream.telemetry.metrics import MetricsPage

WAIT_S = 60.0


class Port:
    """An adapter that notes what becomes of it, and is refused as a port in use."""

    def __init__(self, notes: list[str], name: str = "PORT_IN_USE", refused: bool = False) -> None:
        self.notes, self.name, self.refused = notes, name, refused

    async def start(self, listening: Sequence[socket.socket] = ()) -> int:
        if self.refused:
            raise StartRefused(self.name, "It is taken.")
        self.notes.append("started")
        return 7

    async def close(self) -> None:
        self.notes.append("closed")

    def add_metrics(self, page: MetricsPage) -> None:
        self.notes.append("asked")


def options(directory: Path, *protocols: WantedPort) -> AllInOneOptions:
    return AllInOneOptions(directory, grpc_port=0, remoting_port=0, nameserver_port=0, protocols=protocols)


def wanted(port: ProtocolPort, *, must_open: bool = True) -> WantedPort:
    return WantedPort("mqtt", 1883, lambda site, processor, number: port, must_open)


async def test_a_port_is_opened_and_closed_with_the_proxy(tmp_path: Path) -> None:
    notes: list[str] = []
    server = AllInOne(options(tmp_path, wanted(Port(notes))))
    endpoints = await server.start()
    assert (endpoints.protocols["mqtt"].port, notes, endpoints.missing) == (7, ["started"], {})
    await server.close()
    assert notes == ["started", "closed"]


async def test_a_port_that_somebody_has_is_left_out_where_it_is_not_needed(tmp_path: Path) -> None:
    notes: list[str] = []
    server = AllInOne(options(tmp_path, wanted(Port(notes, refused=True), must_open=False)))
    endpoints = await server.start()
    assert (endpoints.protocols, endpoints.missing) == ({}, {"mqtt": "It is taken."})
    await server.close()
    assert notes == []


@pytest.mark.parametrize(("name", "must_open"), [("PORT_IN_USE", True), ("ADDRESS_NOT_LOCAL", False)])
async def test_a_port_that_is_needed_refuses_the_start(tmp_path: Path, name: str, must_open: bool) -> None:
    notes: list[str] = []
    server = AllInOne(
        options(tmp_path, wanted(Port(notes)), wanted(Port(notes, name, refused=True), must_open=must_open))
    )
    with pytest.raises(StartRefused) as refusal:
        await server.start()
    assert (refusal.value.name, notes) == (name, ["started", "closed"])


async def test_the_http_port_is_one_of_them(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        ports = WantedPort("http", busy, http_port, must_open=False), WantedPort("again", 0, http_port)
        server = AllInOne(options(tmp_path, *ports))
        endpoints = await server.start()
        assert list(endpoints.protocols) == ["again"]
        assert str(busy) in endpoints.missing["http"]
        with socket.create_connection((endpoints.protocols["again"].host, endpoints.protocols["again"].port)):
            await server.close()


MQTT_CONNECT = b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02c1"
GREETINGS = {
    "mqtt": (MQTT_CONNECT, b"\x20\x02\x00\x00"),
    "amqp": (b"AMQP\x00\x00\x09\x01", b"\x01\x00\x00"),
    "http": (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200"),
}
"""What a client says first, and how the answer begins."""


@pytest.mark.parametrize("is_deferred", [False, True])
async def test_each_protocol_is_answered_at_its_port_and_counted(tmp_path: Path, is_deferred: bool) -> None:
    makers = {"mqtt": mqtt_port, "amqp": amqp_port, "http": http_port}
    ports = (WantedPort(name, 0, make, is_deferred=is_deferred) for name, make in makers.items())
    server = AllInOne(options(tmp_path, *ports))
    endpoints = await server.start()
    try:
        async with asyncio.timeout(WAIT_S):
            for name, (greeting, beginning) in GREETINGS.items():
                address = endpoints.protocols[name]
                reader, writer = await asyncio.open_connection(address.host, address.port)
                writer.write(greeting)
                assert (await reader.readexactly(len(beginning))) == beginning, name
                page = await server._metrics.page()
                assert f'protocol_type="{name}"}} 1' in page.text, name
                writer.close()
    finally:
        await server.close()


def test_rules_that_cannot_be_are_refused() -> None:
    with pytest.raises(StartRefused) as refusal:
        mqtt_port(Site(), Processor(cast("BrokerBackend", None)), 0, ["no rule"])
    assert refusal.value.name == "ILLEGAL_SETTING"
