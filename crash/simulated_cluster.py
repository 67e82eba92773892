"""A set of three replicas, three controllers and a nameserver: the product's own roles in one loop of virtual time."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from crash.simulated_network import SimulatedDoorway, SimulatedLoop, SimulatedProcess, running_process
from crash.virtual_loop import VirtualClock
from millstream.consensus import raft_node
from millstream.controller.liveness import Liveness
from millstream.model.errors import MillstreamError
from millstream.replication.sync_set import AckPolicy, SetRequest
from millstream.server.broker_role import BrokerRole, BrokerRoleOptions
from millstream.server.configuration.roles import ControllerSettings
from millstream.server.controller_role import ControllerRole
from millstream.server.nameserver_role import NameserverRole
from millstream.server.replicas.membership import Membership
from millstream.server.replicas.replicated_broker import ReplicaRole, ReplicatedBroker
from millstream.server.site import Site
from millstream.store.files import FileLayer
from millstream.store.message_store import StoreOptions
from millstream.transport import remoting_server

__all__ = ["BROKER_NAME", "NAMESERVER", "Machine", "ReplicaMachine", "SimulatedCluster", "simulated_modules"]

BROKER_NAME: Final = "broker-a"
NAMESERVER: Final = "10.0.3.1:9876"
SEGMENT_BYTES: Final = 64 * 1024
_ROUNDS: Final = 5
"""How often tasks are cancelled: what ends may begin others."""

_RESTART_S: Final = 0.5
"""After which a process is started again whose start failed."""

_CONTROLLERS: Final = tuple(f"n{number}-10.0.2.{number}:9878" for number in (1, 2, 3))
_Role = BrokerRole | ControllerRole | NameserverRole


class _SmallBrokerRole(BrokerRole):
    """Writes small segments, so that logs have several."""

    def _store_options(self) -> StoreOptions:
        return replace(super()._store_options(), segment_bytes=SEGMENT_BYTES, consume_queue_entries=200)


class Machine:
    """A host with one program, which can die, stop and start again."""

    def __init__(self, loop: SimulatedLoop, root: Path, host: str) -> None:
        self.host = host
        self.directory = root / host / "0"
        self.directory.mkdir(parents=True)
        self.process: SimulatedProcess | None = None
        self.role: Any = None
        self.lives = 0
        self._loop = loop
        self.processes: list[SimulatedProcess] = []
        """Of all its lives."""

    @property
    def is_up(self) -> bool:
        """Whether its program runs, stopped or not."""
        return self.process is not None

    def start(self) -> None:
        """Begin a new life."""
        self._loop.network.dark.discard(self.host)
        self.lives += 1
        self.role = None
        self.process = process = SimulatedProcess(self.host)
        self.processes.append(process)
        process.context.copy().run(self._begin, process)

    def kill(self) -> None:
        """End the program at once; what it wrote is kept, as by `kill -9`."""
        self._end(says_so=True)

    def cut_power(self) -> None:
        """End the program and silence the host until the next start."""
        self._end(says_so=False)
        self._loop.network.dark.add(self.host)

    def make_role(self) -> Any:
        """The program."""
        raise NotImplementedError

    def _begin(self, process: SimulatedProcess) -> None:
        self._loop.create_task(self._run(process))

    async def _run(self, process: SimulatedProcess) -> None:
        while True:
            self.role = self.make_role()
            try:
                await self.role.start()
                return
            except MillstreamError:
                await self.role.close()
                await asyncio.sleep(_RESTART_S)

    def _end(self, *, says_so: bool) -> None:
        process = self.process
        if process is None:
            return
        process.is_dead, process.is_stopped = True, False
        self._loop.network.end_process(process, says_so=says_so)
        self.process = None
        # What the dead one's tasks may still do when they are collected must not touch the next life.
        following = self.directory.with_name(str(self.lives))
        shutil.copytree(self.directory, following)
        self.directory = following

    def site(self) -> Site:
        """Where its program runs."""
        return Site(self.host, clock=VirtualClock(self._loop))


class ControllerMachine(Machine):
    """One of the controllers."""

    def __init__(self, loop: SimulatedLoop, root: Path, number: int) -> None:
        super().__init__(loop, root, f"10.0.2.{number}")
        self._number = number

    def make_role(self) -> ControllerRole:
        told = ControllerSettings(id=f"n{self._number}", peers=_CONTROLLERS)
        return ControllerRole(self.site(), self.directory, 9878, told)


class NameserverMachine(Machine):
    """The nameserver."""

    def make_role(self) -> NameserverRole:
        return NameserverRole(self.site(), 9876)


class ReplicaMachine(Machine):
    """One of the replicas."""

    def __init__(self, loop: SimulatedLoop, root: Path, number: int) -> None:
        super().__init__(loop, root, f"10.0.1.{number}")
        self.lost_from: int | None = None
        """Up to where its log was safe when the power failed; None once it has caught up again."""
        self.lost_to = 0

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self.host}:10911"

    @property
    def replicated(self) -> ReplicatedBroker | None:
        """The replica, while its program runs and has opened its store."""
        if self.process is None or self.role is None:
            return None
        found: ReplicatedBroker | None = self.role.replicated
        return found if found is not None and hasattr(found, "log") else None

    @property
    def leads(self) -> bool:
        """Whether it takes itself for the master."""
        return self.replicated is not None and self.replicated.role is ReplicaRole.MASTER

    def make_role(self) -> BrokerRole:
        options = BrokerRoleOptions(
            self.directory,
            10911,
            BROKER_NAME,
            nameservers=(NAMESERVER,),
            controllers=tuple(peer.partition("-")[2] for peer in _CONTROLLERS),
            policy=AckPolicy(min_in_sync=2),
        )
        return _SmallBrokerRole(self.site(), options)

    def lose_tail(self, choose: random.Random) -> None:
        """Cut the power, with the end of the log lost from anywhere behind what was synced."""
        replicated = self.replicated
        if replicated is None:
            self.cut_power()
            return
        flushed, end = replicated.store.flushed_log_offset, replicated.log.end
        kept = choose.randint(min(flushed, end), end)
        self.cut_power()
        if kept < end:
            self.lost_from = kept if self.lost_from is None else min(kept, self.lost_from)
            self.lost_to = max(end, self.lost_to)
            self._zero(kept, end)

    def _zero(self, start: int, end: int) -> None:
        for segment in sorted((self.directory / "store" / "commitlog").iterdir()):
            if segment.name.isdigit():
                first = int(segment.name)
                low, high = max(start - first, 0), min(end - first, segment.stat().st_size)
                if low < high:
                    with segment.open("r+b") as opened:
                        opened.seek(low)
                        opened.write(bytes(high - low))


class SimulatedCluster:
    """All machines. `leases` is when the controllers last gave a lease to which replica."""

    def __init__(self, loop: SimulatedLoop, root: Path) -> None:
        self.loop = loop
        self.network = loop.network
        self.replicas = [ReplicaMachine(loop, root, number) for number in (1, 2, 3)]
        self.controllers = [ControllerMachine(loop, root, number) for number in (1, 2, 3)]
        self.nameserver = NameserverMachine(loop, root, "10.0.3.1")
        self.machines: list[Machine] = [self.nameserver, *self.controllers, *self.replicas]

    def start(self) -> None:
        """Start all that is not up."""
        for machine in self.machines:
            if not machine.is_up:
                machine.start()

    async def wind_up(self, others: Iterable[SimulatedProcess]) -> None:
        """End everything, so that nothing is left to be collected; `others` are not of these machines."""
        processes = [*(process for machine in self.machines for process in machine.processes), *others]
        for _ in range(_ROUNDS):
            tasks = [task for process in processes for task in process.wind_up(self.loop)]
            for task in tasks:
                task.cancel()
            if not tasks:
                return
            await asyncio.wait(tasks, timeout=1)


@contextmanager
def simulated_modules(
    choose: random.Random, grants: dict[tuple[str, int], float], on_alter: Callable[[str, frozenset[int]], None]
) -> Iterator[None]:
    """While this lasts servers listen in the simulation, disks can be full and chance is that of the seed.

    `grants` gets when a controller last gave a lease to each replica; `on_alter` hears the host of a master that is
    about to ask for another set, and that set.
    """

    write, reserve = FileLayer.pwrite, FileLayer.preallocate

    def write_if_room(files: FileLayer, descriptor: int, data: bytes, position: int) -> None:
        # What overwrites blocks that the file has needs no room.
        if position + len(data) > os.fstat(descriptor).st_size:
            _require_room()
        write(files, descriptor, data, position)

    def reserve_if_room(files: FileLayer, descriptor: int, position: int, length: int) -> None:
        _require_room()
        reserve(files, descriptor, position, length)

    syncs = FileLayer.fdatasync, FileLayer.fsync

    def sync_data(files: FileLayer, descriptor: int) -> None:
        _require_disk()
        syncs[0](files, descriptor)

    def sync(files: FileLayer, descriptor: int) -> None:
        _require_disk()
        syncs[1](files, descriptor)

    grant = Liveness.grant_lease

    def noted(liveness: Liveness, name: str, broker_id: int, now_s: float) -> None:
        grants[name, broker_id] = now_s
        grant(liveness, name, broker_id, now_s)

    alter = Membership.alter

    async def told(membership: Membership, wanted: SetRequest) -> tuple[frozenset[int], int]:
        on_alter(membership.address.partition(":")[0], wanted.members)
        return await alter(membership, wanted)

    replaced = (
        (remoting_server, "TlsSniffer", SimulatedDoorway),
        (raft_node, "Random", lambda: random.Random(choose.random())),
        (FileLayer, "pwrite", write_if_room),
        (FileLayer, "preallocate", reserve_if_room),
        (FileLayer, "fdatasync", sync_data),
        (FileLayer, "fsync", sync),
        (Liveness, "grant_lease", noted),
        (Membership, "alter", told),
    )
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    random.seed(choose.random())
    try:
        for owner, name, twin in replaced:
            setattr(owner, name, twin)
        with _closed_files():
            yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


@contextmanager
def _closed_files() -> Iterator[None]:
    """Close at the end what killed processes had open, as the system would have: a soak has very many of them."""
    opened: set[int] = set()
    open_file, close_file = FileLayer.open, FileLayer.close

    def open_and_note(files: FileLayer, path: Path, *, create: bool = False) -> int:
        descriptor = open_file(files, path, create=create)
        opened.add(descriptor)
        return descriptor

    def close_and_forget(files: FileLayer, descriptor: int) -> None:
        opened.discard(descriptor)
        close_file(files, descriptor)

    FileLayer.open, FileLayer.close = open_and_note, close_and_forget  # type: ignore[method-assign]
    try:
        yield
    finally:
        FileLayer.open, FileLayer.close = open_file, close_file  # type: ignore[method-assign]
        for descriptor in opened:
            os.close(descriptor)


def _require_room() -> None:
    process = running_process()
    if process is not None and process.disk_is_full:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _require_disk() -> None:
    process = running_process()
    if process is not None and process.disk_fails:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
