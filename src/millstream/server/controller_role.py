"""The controller role: its port, its log and its elections."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from millstream.broker.data_directory import document
from millstream.broker.remoting.access import access_handlers
from millstream.client.profiles import credentials_of_environment, tls_of_environment
from millstream.consensus.raft_storage import RaftFiles
from millstream.controller.broker_calls import BrokerCalls
from millstream.controller.controller import TICK_S, Controller, ControllerOptions
from millstream.controller.peer_lines import PeerLines
from millstream.controller.permissions import CONTROLLER_NEEDS
from millstream.controller.raft_log import RaftLog
from millstream.controller.remoting import ControllerHandlers
from millstream.controller.replica_sets import ReplicaSets
from millstream.controller.replicated_log import ControllerPeer, ReplicatedLog, SingleMemberLog
from millstream.controller.settings import SETTINGS, KeptSettings
from millstream.model.errors import StartRefused
from millstream.model.message import Address
from millstream.protocol.remoting.codes import RequestCode
from millstream.server.configuration.roles import ControllerSettings
from millstream.server.site import Site
from millstream.store.damage.integrity import is_part_there
from millstream.store.files import FileLayer
from millstream.store.snapshot import Snapshot
from millstream.transport.gate import RemotingGate
from millstream.transport.remoting_server import RemotingServer

__all__ = ["ControllerRole", "parse_peers"]

_log = logging.getLogger(__name__)

_MS = 1000

_SINGLE = "controller.json"
"""What a controller that is alone has agreed on with itself."""


class ControllerRole:
    """Started once; `controller` and `handlers` are there after `start`. Port 0 takes a free one.

    `directory` is locked by the caller, and keeps what the controllers agreed on.
    """

    def __init__(self, site: Site, directory: Path, port: int, told: ControllerSettings) -> None:
        self._site = site
        self._directory = directory
        self._events = told
        self._resources = AsyncExitStack()
        self.server = RemotingServer({}, site.host, port, clock=site.clock, memory=site.memory)
        self.controller: Controller
        self.handlers: ControllerHandlers

    async def start(self) -> Address:
        """Listen, read what was agreed on, and answer; where brokers reach it. Raises StartRefused, STORE_FORMAT.

        What was opened before a failure is for `close`.
        """
        site, told = self._site, self._events
        peers = parse_peers(told.peers)
        self.server.tls = site.identity
        self.server.descriptors, self.server.strangers = site.descriptors, site.strangers
        # Brokers are to try another controller until this one can answer.
        self.server.admits = False
        address = Address(site.reachable_host, await self.server.start())
        self._resources.push_async_callback(self.server.close)
        calls = BrokerCalls(site.first_user or credentials_of_environment(), tls_of_environment())
        self._resources.push_async_callback(calls.close)
        self.controller = controller = self._open_controller(peers, address, calls)
        self._resources.push_async_callback(controller.close)
        kept = KeptSettings(controller, Snapshot(self._directory / SETTINGS))
        kept.restore(controller)
        self.handlers = ControllerHandlers(controller, kept)
        self.server.gate = RemotingGate(site.guard, CONTROLLER_NEEDS) if site.guard else None
        users = access_handlers(site.guard) if site.guard else {}
        self.server.handlers = {**self.server.handlers, **self.handlers.table, **users}
        self.server.admits = True
        ticking = asyncio.create_task(_tick_forever(controller), name="controller-ticks")
        self._resources.callback(ticking.cancel)
        # Once more, so that it is closed first: what is under way must not meet a closed log.
        self._resources.push_async_callback(self.server.close)
        self._resources.callback(self.handlers.close)
        return address

    async def close(self) -> None:
        """Take no more requests and elect nobody any more."""
        await self._resources.aclose()

    def _open_controller(self, peers: tuple[ControllerPeer, ...], address: Address, calls: BrokerCalls) -> Controller:
        told, sets = self._events, ReplicaSets()
        me = ControllerPeer(told.id, f"{address.host}:{address.port}")
        options = ControllerOptions(
            told.group,
            told.id,
            peers or (me,),
            told.silence_ms / _MS,
            told.lease_ms / _MS,
            told.unclean_elections,
            told.notify_brokers,
        )
        log = self._open_log(sets, me, peers)
        return Controller(sets, log, options, self._site.clock, notify=calls.notify, reach=calls.reach)

    def _open_log(self, sets: ReplicaSets, me: ControllerPeer, peers: tuple[ControllerPeer, ...]) -> ReplicatedLog:
        if len(peers) < 2:
            return SingleMemberLog(sets, me, document(self._directory, _SINGLE))
        if is_part_there(self._directory / _SINGLE, FileLayer()):
            raise StartRefused(
                "ILLEGAL_SETTING",
                f"{self._directory} is that of a controller that was alone; controller.peers names {len(peers)}.",
                remedy="Start several controllers with new directories: brokers register again by themselves.",
            )
        if me.id not in {peer.id for peer in peers}:
            raise StartRefused("ILLEGAL_SETTING", f"controller.peers does not name this controller, {me.id}.")
        told, site = self._events, self._site
        others = [peer for peer in peers if peer.id != me.id]
        credentials = site.first_user or credentials_of_environment()
        lines = PeerLines(told.group, me.id, others, credentials, tls_of_environment())
        storage = RaftFiles(self._directory / "raft")
        log = RaftLog(sets, told.group, me, peers, storage, lines, clock=site.clock)
        self.server.handlers = {RequestCode.RAFT_MESSAGE: log.receive}
        log.start()
        return log


def parse_peers(texts: tuple[str, ...]) -> tuple[ControllerPeer, ...]:
    """Controllers, each `id-host:port` as in RocketMQ's controllerDLegerPeers. Raises ILLEGAL_SETTING."""
    found = []
    for text in filter(None, (part.strip() for told in texts for part in told.split(";"))):
        number, dash, address = text.partition("-")
        host, _, port = address.rpartition(":")
        if not number or not dash or not host or not port.isdigit() or not 0 < int(port) < 65_536:
            words = f"controller.peers: {text[:80]!r} is no controller of the form id-host:port."
            raise StartRefused("ILLEGAL_SETTING", words)
        found.append(ControllerPeer(number, address))
    if len({peer.id for peer in found}) < len(found):
        raise StartRefused("ILLEGAL_SETTING", "controller.peers: two controllers have the same id.")
    return tuple(found)


async def _tick_forever(controller: Controller) -> None:
    while True:
        try:
            controller.tick()
        except Exception:  # noqa: BLE001 - an edge: a look that fails must not be the last one
            _log.exception("A look for dead masters failed.")
        await asyncio.sleep(TICK_S)
