"""A port that costs next to nothing until somebody needs it: it listens, and its adapter is loaded later.

The adapters of further protocols are some 200 modules: a tenth of a second of a start, and 8 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final, Protocol

from millstream.model.errors import MillstreamError
from millstream.model.state_topics import AMQP_TOPIC, HTTP_SUBSCRIPTIONS_TOPIC, MQTT_SESSIONS_TOPIC
from millstream.proxy.backend import BrokerBackend
from millstream.telemetry.metrics import MetricsPage
from millstream.telemetry.port_traffic import PortTraffic, add_port
from millstream.transport.listening import listen_refused, open_listening

__all__ = ["STATE_INTERVAL_S", "DeferredPort", "ProtocolPort"]

STATE_INTERVAL_S: Final = 1.0
"""Seconds between two looks whether there is state of the protocol."""

_ADAPTERS: Final = {
    "mqtt": ("millstream.proxy.mqtt.server", MQTT_SESSIONS_TOPIC),
    "amqp": ("millstream.proxy.amqp.server", AMQP_TOPIC),
    "http": ("millstream.proxy.http.server", HTTP_SUBSCRIPTIONS_TOPIC),
}
"""The module of each adapter, and the topic with what it has to do though no client is there: wills, sessions and
queues that end, events for webhooks."""

_log = logging.getLogger(__name__)


class ProtocolPort(Protocol):
    """What each adapter is to the proxy: made with the port's number, opened and closed once."""

    async def start(self, listening: Sequence[socket.socket] = ()) -> int:
        """Listen, on sockets that do so already if there are some; the port that was bound.

        Raises StartRefused: PORT_IN_USE, ADDRESS_NOT_LOCAL.
        """
        ...

    async def close(self) -> None:
        """Take no more requests, and answer or give back what is under way."""
        ...

    def add_metrics(self, page: MetricsPage) -> None:
        """Tell the page of the port."""
        ...


class DeferredPort:
    """See `ProtocolPort`: `make` is called when the first client comes, or when the protocol's state topic is there.

    Connections wait in the system until then, and lose nothing. `make` must not raise: settings that it might refuse
    are no case for this.
    """

    def __init__(
        self, protocol: str, host: str, port: int, backend: BrokerBackend, make: Callable[[], ProtocolPort]
    ) -> None:
        self._protocol = protocol
        self._host = host
        self._port = port
        self._backend = backend
        self._make = make
        self._module, self._state_topic = _ADAPTERS[protocol]
        self._listening: list[socket.socket] = []
        self._is_needed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._adapter: ProtocolPort | None = None

    async def start(self, listening: Sequence[socket.socket] = ()) -> int:
        """See `ProtocolPort`."""
        try:
            self._listening = [*listening] or await open_listening(self._host, self._port)
        except OSError as error:
            raise listen_refused(self._host, self._port, error) from None
        loop = asyncio.get_running_loop()
        for one in self._listening:
            loop.add_reader(one, self._need)
        self._watching = asyncio.create_task(self._load_when_needed(), name=f"{self._protocol}-port")
        return int(self._listening[0].getsockname()[1])

    async def close(self) -> None:
        """See `ProtocolPort`."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self._need()
        if self._adapter is not None:
            await self._adapter.close()
        self._close_listening()

    def add_metrics(self, page: MetricsPage) -> None:
        """See `ProtocolPort`: before the adapter is there, nobody came."""
        if self._adapter is None:
            add_port(page, self._protocol, 0, PortTraffic())
        else:
            self._adapter.add_metrics(page)

    def _need(self) -> None:
        loop = asyncio.get_running_loop()
        for one in self._listening:
            loop.remove_reader(one)
        self._is_needed.set()

    async def _load_when_needed(self) -> None:
        try:
            while not self._is_needed.is_set() and not await self._has_state():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_needed.wait(), STATE_INTERVAL_S)
            self._need()
            # In a thread: what is served beside it goes on.
            await asyncio.to_thread(import_module, self._module)
            adapter = self._make()
            # From here on it is the one that has the sockets and closes them.
            self._adapter = adapter
            await adapter.start(self._listening)
            self._listening = []
        except Exception:  # noqa: BLE001 - a task of the port's whole life; what it served without is not to end
            _log.exception("the port for %s cannot be served", self._protocol)
            self._close_listening()

    def _close_listening(self) -> None:
        for one in self._listening:
            one.close()
        self._listening = []

    async def _has_state(self) -> bool:
        try:
            await self._backend.route(self._state_topic)
        except MillstreamError:
            # It is not there, or its brokers cannot be asked now.
            return False
        return True
