"""C2, cluster-faults: sets of replicas under kills, lost power, pauses, cuts, slow networks and full disks."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from crash.programme import ProgrammeRun
from crash.raft_group import BrokenInvariant
from crash.simulated_clients import SimulatedClient
from crash.simulated_cluster import Machine, ReplicaMachine, SimulatedCluster, simulated_modules
from crash.simulated_invariants import SetInvariants
from crash.simulated_network import SimulatedLoop

__all__ = ["SimulatedSet", "run_clusters"]

HEALING_S: Final = 30.0
"""In that time a healed set has all its members, and each client is answered again."""

_LOOK_S: Final = 0.05
_CLIENTS: Final = 3
_FAULTS: Final = 12

_STRANDED_SHARE: Final = 0.15
_STRANDED_S: Final = (1.0, 5.0)
"""In that time the master may acknowledge what the newcomer lacks: while it waits for the answer, or later."""

_STRANDED_DOWN_S: Final = 8.0
"""Longer than an election takes in which the newcomer alone lives."""


def run_clusters(run: ProgrammeRun) -> None:
    """C2. 8 (CI), 300 (full) or 20,000 (soak) sets, each with 12 faults and a healing at its end."""
    counts: Counter[str] = Counter()
    logging.getLogger("millstream").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sets = run.by_size(8, 300, 20_000)
    for number in range(sets):
        seed = run.seed * 1_000_003 + number
        directory = run.scratch / str(number)
        simulated = SimulatedSet(directory, seed)
        wrong = simulated.run()
        counts.update(simulated.counts)
        if wrong is not None:
            run.fail(f"set {number} (seed {seed}) {wrong}")
    run.counts |= {"sets": sets, **counts}
    for name in ("acknowledged", "elections", "kills", "cuts"):
        if not counts[name]:
            run.fail(f"there were no {name}, so nothing was tested")


class SimulatedSet:
    """One seed: a set of replicas, its clients and its faults. `trace` tells what happened when."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.trace: list[str] = []
        self.invariants: SetInvariants
        self._directory = directory
        self._choose = random.Random(seed)
        self._loop = SimulatedLoop(self._choose)
        self._cluster: SimulatedCluster
        self._clients: list[SimulatedClient] = []
        self._failure: BrokenInvariant | None = None
        self._is_healed = False

    def run(self) -> str | None:
        """What did not hold, and when."""
        grants: dict[tuple[str, int], float] = {}
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda _loop, _context: None)
        try:
            with simulated_modules(self._choose, grants, self._note_alter):
                return self._loop.run_until_complete(self._live(grants))
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()
            gc.collect()

    async def _live(self, grants: dict[tuple[str, int], float]) -> str | None:
        self._cluster = cluster = SimulatedCluster(self._loop, self._directory)
        self.invariants = SetInvariants(cluster, grants)
        wrong = None
        try:
            await self._go()
        except BrokenInvariant as error:
            wrong = f"after {self._loop.time():.2f} s: {error}"
        self.counts["acknowledged"] += len(self.invariants.receipts)
        self.counts["elections"] += len(self.invariants.epochs)
        self.counts["excused"] += self.invariants.excused
        await cluster.wind_up(client.process for client in self._clients)
        return wrong

    async def _go(self) -> None:
        cluster, invariants = self._cluster, self.invariants
        cluster.start()
        self._clients = clients = [SimulatedClient(cluster, number, self._choose) for number in range(1, _CLIENTS + 1)]
        sending = []
        for client in clients:
            client.on_ack = self._guarded(invariants.note_ack)
            client.on_commit = invariants.note_commit
            sending.append(client.start())
        await self._pass_time(self._choose.uniform(3, 5))
        for _ in range(_FAULTS):
            self._break_something()
            await self._pass_time(self._choose.expovariate(0.7))
        self._heal()
        await self._recover(clients)
        for task in sending:
            task.cancel()
        await self._become_level()
        invariants.check_end()
        asked = clients[0].ask_offset()
        await asyncio.wait([asked])
        invariants.check_commit(asked.result())

    def _guarded(self, note: Callable[..., None]) -> Callable[..., None]:
        """An invariant that breaks inside a client's task ends the run."""

        def guarded(*words: Any) -> None:
            try:
                note(*words)
            except BrokenInvariant as error:
                self._failure = self._failure or error

        return guarded

    async def _pass_time(self, seconds: float) -> None:
        until_s = self._loop.time() + seconds
        while self._loop.time() < until_s:
            await asyncio.sleep(_LOOK_S)
            if self._failure is not None:
                raise self._failure
            self.invariants.look()

    async def _recover(self, clients: list[SimulatedClient]) -> None:
        """Wait until the set is whole and each client was answered anew."""
        acked = [client.acked for client in clients]
        until_s = self._loop.time() + HEALING_S
        while self._loop.time() < until_s:
            await self._pass_time(0.2)
            if self._is_whole() and all(now.acked > before for now, before in zip(clients, acked, strict=True)):
                self._note("recovered")
                return
        raise BrokenInvariant(f"the set did not recover in {HEALING_S:g} s: {self._describe()}")

    async def _become_level(self) -> None:
        until_s = self._loop.time() + HEALING_S
        while self._loop.time() < until_s:
            await self._pass_time(0.5)
            found = {
                (one.replicated.log.end, one.replicated.store.confirmed_log_offset)
                for one in self._cluster.replicas
                if one.replicated is not None
            }
            if len(found) == 1 and len({*found.pop()}) == 1 and self._is_whole():
                return
        raise BrokenInvariant(f"the replicas are not level after {HEALING_S:g} s: {self._describe()}")

    def _is_whole(self) -> bool:
        leading = [one.replicated for one in self._cluster.replicas if one.leads]
        source = leading[0].port.source if len(leading) == 1 and leading[0] is not None else None
        return source is not None and len(source.sync_set.members) == len(self._cluster.replicas)

    def _describe(self) -> str:
        words = []
        for one in self._cluster.replicas:
            replicated = one.replicated
            if replicated is None:
                words.append(f"{one.host} down")
                continue
            source = replicated.port.source
            members = sorted(source.sync_set.members) if source else "-"
            store = replicated.store
            words.append(
                f"{one.host} {replicated.role.value} epoch {replicated.view.epoch} master {replicated.view.master_id} "
                f"set {members} log {replicated.log.end} confirmed {store.confirmed_log_offset}"
            )
        return "; ".join(words)

    # faults

    def _note(self, what: str, count: str = "") -> None:
        self.trace.append(f"{self._loop.time():7.2f} {what}")
        if count:
            self.counts[count] += 1

    def _break_something(self) -> None:
        choose, cluster = self._choose, self._cluster
        kinds: list[tuple[float, Callable[[], None]]] = [
            (5, self._kill_replica),
            (2, self._lose_power),
            (3, self._stop),
            (5, self._isolate),
            (3, self._cut_link),
            (2, self._slow_down),
            (2, lambda: cluster.network.reset_one()),
            (2, self._kill_controller),
            (1, self._fill_disk),
            (1, self._fail_disk),
            (0.5, self._restart_all),
            (0.5, self._kill_nameserver),
            (3, self._mend),
        ]
        chosen = choose.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]
        chosen()

    def _master_or_any(self) -> ReplicaMachine:
        """More often a master than not: there it matters most."""
        leading = [one for one in self._cluster.replicas if one.leads]
        return self._choose.choice(leading if leading and self._choose.random() < 0.6 else self._cluster.replicas)

    def _kill_replica(self) -> None:
        machine = self._master_or_any()
        self._note(f"kill {machine.host}", "kills")
        self._note_loss(machine)
        machine.kill()
        self._start_later(machine)

    def _kill_controller(self) -> None:
        machine = self._choose.choice(self._cluster.controllers)
        self._note(f"kill {machine.host}", "controller_kills")
        machine.kill()
        self._start_later(machine)

    def _kill_nameserver(self) -> None:
        self._note("kill the nameserver")
        self._cluster.nameserver.kill()
        self._start_later(self._cluster.nameserver)

    def _lose_power(self) -> None:
        machine = self._master_or_any()
        self._note_loss(machine)
        machine.lose_tail(self._choose)
        self._note(f"power of {machine.host}, kept {machine.lost_from} of {machine.lost_to}", "power_cuts")
        self._start_later(machine)

    def _restart_all(self) -> None:
        self._note("kill all", "kills")
        self.invariants.losses_s.append(self._loop.time())
        for machine in self._cluster.machines:
            machine.kill()
            self._start_later(machine)

    def _note_loss(self, machine: ReplicaMachine) -> None:
        if machine.leads:
            self.invariants.losses_s.append(self._loop.time())

    def _note_cut(self, *hosts: str) -> None:
        """A master that replicas do not hear any more is lost from here on, however late another one is elected."""
        if any(machine.leads and machine.host in hosts for machine in self._cluster.replicas):
            self.invariants.losses_s.append(self._loop.time())

    def _start_later(self, machine: Machine) -> None:
        self._loop.call_later(self._choose.choice((0.05, 0.3, 1, 4, 10)), self._start, machine)

    def _start(self, machine: Machine) -> None:
        if not machine.is_up:
            self._note(f"start {machine.host}")
            machine.start()

    def _stop(self) -> None:
        machines: list[Machine] = [*self._cluster.replicas, self._choose.choice(self._cluster.controllers)]
        machine = self._master_or_any() if self._choose.random() < 0.7 else self._choose.choice(machines)
        process = machine.process
        if process is not None and not process.is_stopped:
            seconds = self._choose.choice((0.5, 2.5, 4.0, 8.0))
            self._note(f"stop {machine.host} for {seconds} s", "stops")
            self._note_cut(machine.host)
            process.is_stopped = True
            self._loop.call_later(seconds, process.go_on, self._loop)

    def _isolate(self) -> None:
        """Cut a machine from the other servers; clients may still reach it."""
        machine = self._master_or_any() if self._choose.random() < 0.8 else self._choose.choice(self._cluster.machines)
        others = [one.host for one in self._cluster.machines if one is not machine]
        if self._choose.random() < 0.4:
            # With a part of the controllers, or of the replicas, on its side.
            others = self._choose.sample(others, len(others) // 2)
        self._note_cut(machine.host)
        ways = self._choose.choice(("both", "both", "from", "to"))
        if ways != "to":
            self._cluster.network.cut |= {(machine.host, other) for other in others}
        if ways != "from":
            self._cluster.network.cut |= {(other, machine.host) for other in others}
        self._note(f"isolate {machine.host} {ways} {len(others)}", "cuts")

    def _cut_link(self) -> None:
        hosts = [one.host for one in [*self._cluster.replicas, *self._cluster.controllers]]
        first, second = self._choose.sample(hosts, 2)
        self._note_cut(first, second)
        self._cluster.network.cut.add((first, second))
        if self._choose.random() < 0.5:
            self._cluster.network.cut.add((second, first))
        self._note(f"cut {first} {second}", "cuts")

    def _slow_down(self) -> None:
        self._cluster.network.slowest_s = self._choose.choice((0.002, 0.1, 0.5, 2.0))
        self._note(f"delays of {self._cluster.network.slowest_s} s", "delays")

    def _fill_disk(self) -> None:
        process = self._choose.choice(self._cluster.replicas).process
        if process is not None:
            self._note(f"disk of {process.host} is full", "full_disks")
            process.disk_is_full = True
            seconds = self._choose.uniform(0.5, 5)
            # Offsets are not written meanwhile.
            self.invariants.losses_s += [self._loop.time(), self._loop.time() + seconds]
            self._loop.call_later(seconds, setattr, process, "disk_is_full", False)

    def _fail_disk(self) -> None:
        """A disk fails for good; the set must go on without it."""
        machine = self._master_or_any()
        if machine.process is not None:
            self._note(f"disk of {machine.host} fails", "failed_disks")
            self._note_loss(machine)
            machine.process.disk_fails = True

    def _note_alter(self, host: str, wanted: frozenset[int]) -> None:
        """Now and then the master does not hear that the set grew, and the newcomer is soon the only one left."""
        if self._is_healed or self._choose.random() > _STRANDED_SHARE:
            return
        master = next(one for one in self._cluster.replicas if one.host == host)
        source = master.replicated.port.source if master.replicated is not None else None
        others = [one for one in self._cluster.replicas if one is not master and one.replicated is not None]
        arriving = wanted - source.sync_set.members if source is not None else frozenset()
        newcomers = [one for one in others if one.replicated and one.replicated.identity.broker_id in arriving]
        if len(newcomers) != 1:
            return
        newcomer = newcomers[0]
        self._note(f"strand {newcomer.host} from {host}", "stranded")
        self._cluster.network.cut |= {(controller.host, host) for controller in self._cluster.controllers}
        self._cluster.network.cut |= {(newcomer.host, host), (host, newcomer.host)}
        seconds = self._choose.choice(_STRANDED_S)
        for machine in self._cluster.replicas:
            if machine is not newcomer:
                self._loop.call_later(seconds, self._kill_for_long, machine)

    def _kill_for_long(self, machine: ReplicaMachine) -> None:
        if machine.is_up and not self._is_healed:
            self._note(f"kill {machine.host}", "kills")
            self._note_loss(machine)
            machine.kill()
            self._loop.call_later(_STRANDED_DOWN_S, self._start, machine)

    def _mend(self) -> None:
        self._note("mend the network")
        self._cluster.network.heal()

    def _heal(self) -> None:
        self._note("heal")
        self._is_healed = True
        cluster = self._cluster
        cluster.network.heal()
        for machine in cluster.machines:
            process = machine.process
            if process is not None and process.disk_fails:
                # Somebody gave it another disk, and started it again as its errors say.
                machine.kill()
            elif process is not None:
                process.disk_is_full = False
                if process.is_stopped:
                    process.go_on(self._loop)
        cluster.start()
