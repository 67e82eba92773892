"""Chromium as a client: MQTT over WebSockets by the official bundle of mqtt.js, server-sent events, fetch, WebSockets.

Its pages have an origin of their own, as those of any web site.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from interop.browser.pages import Browser
from interop.browser.relay import Relay
from interop.server import Server
from millstream.server.child import ServerProcess

_PORTS = ("--mqtt-port", "0", "--amqp-port", "off", "--http-port", "0")
_EXPECTED = [(0, "m0"), (1, "m1"), (2, "m2")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


class _Place:
    """A server, and where it keeps its files."""

    def __init__(self, process: ServerProcess, directory: Path) -> None:
        self.mqtt, self.http = (process.addresses.protocols[name] for name in ("mqtt", "http"))
        self.directory = directory
        self.process = process
        self.server = Server.of(process)

    def post(self, topic: str, body: bytes, fields: Mapping[str, str]) -> None:
        """Send a message over HTTP with these header fields, as a program that is no browser."""
        url = f"http://{self.http}/v1/topics/{topic}/messages"
        urllib.request.urlopen(urllib.request.Request(url, body, dict(fields)), timeout=10).close()


def _open(running: ExitStack, directory: Path, *options: str) -> _Place:
    process = running.enter_context(ServerProcess(directory, options=(*_PORTS, *options)))
    return _Place(process, directory)


@pytest.fixture(scope="module")
def allowed(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Place]:
    """A server that was told the origin of the pages."""
    with ExitStack() as running:
        yield _open(running, tmp_path_factory.mktemp("allowed") / "data", "--http-origins", browser.origin)


def _public_key_digest(certificate: Path) -> str:
    def run(*words: str, said: bytes = b"") -> bytes:
        return subprocess.run(["openssl", *words], input=said, stdout=subprocess.PIPE, check=True).stdout

    public = run("x509", "-in", str(certificate), "-noout", "-pubkey")
    return base64.b64encode(hashlib.sha256(run("pkey", "-pubin", "-outform", "der", said=public)).digest()).decode()


@pytest.mark.parametrize("version", ["4", "5"])
@pytest.mark.parametrize("form", ["ws", "wss"])
def test_a_page_gets_what_it_publishes_over_mqtt_and_what_is_retained(
    browser: Browser, allowed: _Place, form: str, version: str
) -> None:
    key = _public_key_digest(allowed.directory / "tls" / "certificate.pem") if form == "wss" else ""
    prefix = f"page/{form}/{version}"
    found = browser.play("mqtt", mqtt=f"{form}://{allowed.mqtt}/mqtt", version=version, prefix=prefix, trusted_key=key)
    assert [(one["qos"], one["payload"]) for one in found["messages"]] == _EXPECTED
    assert all(one["user"] == ({"a": "b"} if version == "5" else {}) for one in found["messages"])
    assert (found["kept"], found["retain"]) == (100_000, True)


def test_a_page_that_loses_its_socket_finds_its_session_and_each_message_once(
    browser: Browser, allowed: _Place
) -> None:
    with Relay(allowed.mqtt) as relay:
        found = browser.play(
            "session",
            orders={"cut": relay.cut, "mend": relay.mend},
            mqtt=f"ws://{relay.address}/mqtt",
            direct=f"ws://{allowed.mqtt}/mqtt",
        )
    assert found["sessions"] == [False, True]
    # A client hands out a message of QoS 2 when it is released, which may be after later ones of QoS 1.
    for qos in (1, 2):
        others = [f"o{number}" for number in range(50) if 1 + number % 2 == qos]
        assert [one for one in found["messages"] if one in (*others, f"p{qos}")] == [*others, f"p{qos}"]
    assert len(found["messages"]) == 52


def test_an_event_source_misses_nothing_while_its_connection_is_cut_and_while_the_server_stops(
    browser: Browser, tmp_path: Path
) -> None:
    with ExitStack() as running:
        options = ("--http-origins", browser.origin)
        places = [_open(running, tmp_path / "data", *options)]
        topic = places[0].server.topic()
        relay = running.enter_context(Relay(places[0].http))

        def start() -> None:
            places.append(_open(running, tmp_path / "data", *options))
            relay.target = places[-1].http
            relay.mend()

        def stop() -> None:
            # The stream is ended by the server, not by the relay; the next one is not led to a port of nobody.
            relay.mend()
            places[-1].process.stop()
            relay.cut()

        def post(number: int) -> None:
            fields = {"ce-specversion": "1.0", "ce-source": "/s", "ce-type": "t", "ce-id": str(number)}
            places[-1].post(topic, b"{}", fields)

        orders: dict[str, Callable[[], object]] = {"cut": relay.cut, "mend": relay.mend, "stop": stop, "start": start}
        orders |= {f"post-{number}": partial(post, number) for number in range(100)}
        found = browser.play("events", orders=orders, http=f"http://{relay.address}", topic=topic)
    assert found["sent"] == 50
    assert sorted(map(int, found["ids"])) == [*range(found["sent"])]
    assert found["opened"] >= 3


def test_a_page_sends_events_receives_them_over_a_websocket_and_reads_refusals(
    browser: Browser, allowed: _Place
) -> None:
    found = browser.play("http", http=f"http://{allowed.http}", topic=allowed.server.topic(), group="page")
    assert found["statuses"] == [[200, 1]] * 5
    assert (found["ids"], found["settled"]) == ([f"e{number}" for number in range(5)], 5)
    assert (found["refused"], found["recalled"]) == (404, 422)
    assert found["codes"] == ["MS-2101", "MS-3013"]


def test_a_page_of_an_origin_that_was_not_told_may_neither_send_nor_see_anything(
    browser: Browser, tmp_path: Path
) -> None:
    with ExitStack() as running:
        place = _open(running, tmp_path / "data")
        topic = place.server.topic()
        found = browser.play("refused", http=f"http://{place.http}", mqtt=f"ws://{place.mqtt}/mqtt", topic=topic)
        with pytest.raises(urllib.error.HTTPError) as refusal:
            place.post(topic, b"x", {"origin": browser.origin})
        with refusal.value as answer:
            assert (answer.code, json.loads(answer.read())["code"]) == (403, "MS-5106")
        place.post(topic, b"own", {"origin": f"http://{place.http}"})
        with place.server.client() as client:
            stored = [one.body for queue in client.queues(topic) for one in client.pull(queue, 0).messages()]
    assert stored == [b"own"]
    # No answer is there for the page to read, and the blind one is opaque. 2 is CLOSED: the stream is not asked for
    # again. 1006 is a WebSocket that was not opened.
    assert found == {
        "plain": "TypeError",
        "event": "TypeError",
        "blind": "opaque",
        "stream": 2,
        "socket": 1006,
        "mqtt": 1006,
    }
