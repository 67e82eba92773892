"""Clients of MQTT that others wrote, unmodified: paho, gmqtt, mqtt.js (also over WebSockets), and mosquitto's tools."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.driver import install, require
from millstream.server.child import ServerProcess

_PATIENCE_S = 30.0
_OPTIONS = ("--mqtt-port", "0", "--amqp-port", "off", "--http-port", "off")
_EXPECTED = [(0, "m0"), (1, "m1"), (2, "m2")]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("mqtt") / "data", options=_OPTIONS) as process:
        yield process.addresses.protocols["mqtt"]


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@pytest.mark.parametrize("version", [4, 5])
def test_paho_gets_what_it_publishes_and_what_came_while_it_was_away(address: str, version: int) -> None:
    paho = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    host, port = _place(address)
    found: list[tuple[int, str]] = []
    there = threading.Event()

    def note(_client: Any, _data: Any, message: Any) -> None:
        found.append((message.qos, message.payload.decode()))
        if len(found) == len(_EXPECTED):
            there.set()

    def connected(client_id: str) -> Any:
        more = {"clean_session": False} if version == 4 else {}
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=version, **more)
        client.on_message = note
        options: dict[str, Any] = {}
        if version == 5:
            held = paho.Properties(paho.PacketTypes.CONNECT)
            held.SessionExpiryInterval = 60
            options = {"clean_start": False, "properties": held}
        client.connect(host, port, **options)
        client.loop_start()
        return client

    reader, subscribed = connected(f"reader-{version}"), threading.Event()
    reader.on_subscribe = lambda *_: subscribed.set()
    reader.subscribe(f"paho/{version}/#", 2)
    assert subscribed.wait(_PATIENCE_S)
    reader.disconnect()
    reader.loop_stop()
    writer = connected(f"writer-{version}")
    for qos, payload in _EXPECTED:
        writer.publish(f"paho/{version}/{qos}", payload, qos).wait_for_publish(_PATIENCE_S)
    reader = connected(f"reader-{version}")
    assert there.wait(_PATIENCE_S)
    assert found == _EXPECTED
    for client in (reader, writer):
        client.disconnect()
        client.loop_stop()


def test_paho_comes_over_a_websocket_for_which_it_names_the_ports_own_origin(address: str) -> None:
    paho = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    host, port = _place(address)
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho-ws", transport="websockets")
    client.connect(host, port)
    client.loop_start()
    client.publish("paho/ws", "m", 1).wait_for_publish(_PATIENCE_S)
    assert client.is_connected()
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("version", [4, 5])
def test_gmqtt_gets_what_it_publishes(address: str, version: int) -> None:
    gmqtt = pytest.importorskip("gmqtt", reason="gmqtt is not installed")
    host, port = _place(address)

    async def exchange() -> list[tuple[int, str]]:
        client, found = gmqtt.Client(f"gmqtt-{version}"), []
        there, subscribed = asyncio.Event(), asyncio.Event()

        def note(_client: Any, _topic: str, payload: bytes, qos: int, _properties: Any) -> int:
            found.append((qos, payload.decode()))
            if len(found) == len(_EXPECTED):
                there.set()
            return 0

        client.on_message = note
        client.on_subscribe = lambda *_, **__: subscribed.set()
        async with asyncio.timeout(_PATIENCE_S):
            await client.connect(host, port, version=version)
            client.subscribe("gmqtt/#", qos=2)
            await subscribed.wait()
            for qos, payload in _EXPECTED:
                client.publish(f"gmqtt/{qos}", payload, qos=qos)
            await there.wait()
            await client.disconnect()
        return found

    assert asyncio.run(exchange()) == _EXPECTED


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("form", ["mqtt://{}", "ws://{}/mqtt"])
def test_mqtt_js_gets_what_it_publishes(address: str, version: int, form: str) -> None:
    require("node", "npm")
    folder = Path(__file__).parent / "mqtt-js"
    if not (folder / "node_modules" / "mqtt").exists():
        install(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"], folder)
    command = ["node", str(folder / "exchange.mjs"), form.format(address), str(version)]
    said = subprocess.run(command, stdout=subprocess.PIPE, timeout=_PATIENCE_S, check=True, text=True).stdout
    found = json.loads(said)
    assert [(one["qos"], one["payload"]) for one in found] == _EXPECTED
    assert all(one["user"] == ({"a": "b"} if version == 5 else {}) for one in found)


def _mosquitto(tool: str, address: str, *options: str, fails: bool = False) -> str:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed (Debian: mosquitto-clients)")
    host, port = _place(address)
    command = [tool, "-h", host, "-p", str(port), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=_PATIENCE_S, text=True, check=not fails)
    return done.stdout


def test_mosquittos_tools_get_retained_messages_and_those_of_a_session(address: str) -> None:
    _mosquitto("mosquitto_pub", address, "-t", "m/kept", "-m", "kept", "-q", "1", "-r")
    assert _mosquitto("mosquitto_sub", address, "-t", "m/#", "-C", "1", "-v") == "m/kept kept\n"
    session = ("-i", "mosquitto", "-c", "-q", "1", "-t", "s/#")
    _mosquitto("mosquitto_sub", address, *session, "-E")
    user = ("-V", "5", "-D", "publish", "user-property", "k", "v")
    _mosquitto("mosquitto_pub", address, "-t", "s/1", "-m", "one", "-q", "2", *user)
    _mosquitto("mosquitto_pub", address, "-t", "s/2", "-m", "two", "-q", "1")
    assert _mosquitto("mosquitto_sub", address, *session, "-C", "2", "-v") == "s/1 one\ns/2 two\n"


def test_a_session_and_what_is_retained_outlive_kill_9(tmp_path: Path) -> None:
    session = ("-i", "killed", "-c", "-q", "2", "-t", "k/#")
    for number in range(2):
        with ServerProcess(tmp_path / "data", options=_OPTIONS) as process:
            address = process.addresses.protocols["mqtt"]
            if not number:
                _mosquitto("mosquitto_sub", address, *session, "-E")
                _mosquitto("mosquitto_pub", address, "-t", "k/1", "-m", "one", "-q", "2")
                _mosquitto("mosquitto_pub", address, "-t", "k/2", "-m", "two", "-q", "2")
                _mosquitto("mosquitto_pub", address, "-t", "kept/2", "-m", "kept", "-q", "1", "-r")
                process.kill()
                continue
            assert _mosquitto("mosquitto_sub", address, *session, "-C", "2", "-v") == "k/1 one\nk/2 two\n"
            assert _mosquitto("mosquitto_sub", address, "-t", "kept/2", "-C", "1", "-v") == "kept/2 kept\n"
