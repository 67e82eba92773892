"""Heartbeats of many sets over sockets: controllers as processes of their own, this one plays all the brokers."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.broker_set import cpu_s
from benchmarks.large_cluster.layout import Layout, Member
from millstream.controller.broker_calls import address_of
from millstream.protocol.remoting.administration.controller_requests import (
    AlterSetRequest,
    ApplyIdRequest,
    ControllerMetadata,
    ElectRequest,
    RegisterReplicaRequest,
)
from millstream.protocol.remoting.administration.sync_state_sets import SyncStateSetBody
from millstream.protocol.remoting.bodies import encode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import Request
from millstream.server.child import RoleProcess
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["measure_live_heartbeats"]

_ANSWER_S: Final = 30.0
_SILENCE_MS: Final = 60_000
_AT_A_TIME: Final = 64
_PARTS: Final = 100
"""Moments of a second at which heartbeats begin."""

Figures = dict[str, object]
Lines = Mapping[Member, RemotingConnection]


def measure_live_heartbeats(
    layout: Layout, *, controllers: int = 1, seconds: float = 10, beat_s: float = 1.0
) -> Figures:
    """All replicas send a heartbeat each `beat_s`, each on a connection of its own; the leader's share of a core."""
    with tempfile.TemporaryDirectory() as scratch, _running(Path(scratch), controllers) as processes:
        return asyncio.run(_measure(layout, processes, seconds, beat_s))


@contextmanager
def _running(directory: Path, count: int) -> Iterator[list[RoleProcess]]:
    ports = _free_ports(count)
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports)) if count > 1 else ""
    with ExitStack() as stack:
        processes = []
        for number, port in enumerate(ports):
            # Nobody listens at the brokers' addresses.
            settings = [f"port={port}", f"controller.id=n{number}", "controller.notify_brokers=false"]
            settings += [f'controller.peers=["{peers}"]'] if peers else []
            options = [word for setting in settings for word in ("--set", setting)]
            log = directory / f"n{number}.log"
            one = RoleProcess("controller", directory / f"n{number}", options=options, log=log)
            processes.append(stack.enter_context(one))
        yield processes


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


async def _measure(layout: Layout, processes: list[RoleProcess], seconds: float, beat_s: float) -> Figures:
    leader = await _find_leader(processes)
    members = list(layout.members())
    async with _connected(leader.addresses["controller"], members) as lines:
        await _fill(layout, lines)
        await _beat(layout, lines, members)
        began_s, began_cpu_s = time.monotonic(), {one.pid: cpu_s(one) for one in processes}
        codes: Counter[int] = Counter()
        parts = round(_PARTS * beat_s)
        beating = []
        for moment in range(round(seconds * _PARTS)):
            await asyncio.sleep(max(began_s + moment / _PARTS - time.monotonic(), 0))
            beating.append(asyncio.create_task(_beat(layout, lines, members[moment % parts :: parts])))
        for one in beating:
            codes += await one
        elapsed_s = time.monotonic() - began_s
        shares = {one.pid: (cpu_s(one) - began_cpu_s[one.pid]) / elapsed_s for one in processes}
        return {
            "sets": layout.sets,
            "connections": len(lines),
            "controllers": len(processes),
            "heartbeats": codes.total(),
            "heartbeats_a_second": round(codes.total() / elapsed_s),
            "refused": codes.total() - codes[ResponseCode.SUCCESS],
            "leader_share_of_a_core": round(shares.pop(leader.pid), 3),
            "follower_share_of_a_core": round(max(shares.values(), default=0.0), 3),
        }


async def _find_leader(processes: list[RoleProcess]) -> RoleProcess:
    while True:
        for one in processes:
            line = await _connect(one.addresses["controller"])
            answer = await _ask(line, RequestCode.GET_CONTROLLER_METADATA)
            await line.close()
            if ControllerMetadata.decode(answer.ext).is_leader == "true":
                return one
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _connected(address: str, members: list[Member]) -> AsyncIterator[Lines]:
    lines: dict[Member, RemotingConnection] = {}
    try:
        for first in range(0, len(members), _AT_A_TIME):
            some = members[first : first + _AT_A_TIME]
            opened = await asyncio.gather(*(_connect(address) for _ in some))
            lines |= zip(some, opened, strict=True)
        yield lines
    finally:
        for line in lines.values():
            await line.close()


async def _connect(address: str) -> RemotingConnection:
    line = await RemotingConnection.open(address_of(address))
    # A port keeps few connections that have said nothing yet.
    await _ask(line, RequestCode.GET_CONTROLLER_METADATA)
    return line


async def _fill(layout: Layout, lines: Lines) -> None:
    """All sets are there with all members, the first one the master."""
    room = asyncio.Semaphore(_AT_A_TIME)

    async def fill(set_number: int) -> None:
        async with room:
            for number in range(1, layout.replicas + 1):
                one = Member(set_number, number)
                line, cluster = lines[one], layout.identity(one).cluster
                asked = ApplyIdRequest(cluster, one.name, one.id, f"{one.address};1")
                _check(await _ask(line, RequestCode.APPLY_BROKER_ID, asked))
                register = RegisterReplicaRequest(cluster, one.name, one.id, one.address, all_ack="true")
                _check(await _ask(line, RequestCode.REGISTER_REPLICA, register))
                _check(await _send_beat(layout, line, one))
            master = Member(set_number, 1)
            line = lines[master]
            _check(await _ask(line, RequestCode.ELECT_MASTER, ElectRequest(master.name, broker_id=master.id)))
            body = encode_body(SyncStateSetBody([*range(1, layout.replicas + 1)], 1))
            _check(await _ask(line, RequestCode.ALTER_SYNC_STATE_SET, AlterSetRequest(master.name, master.id, 1), body))

    await asyncio.gather(*map(fill, range(layout.sets)))


async def _beat(layout: Layout, lines: Lines, members: list[Member]) -> Counter[int]:
    """Heartbeats of these members at one time; how often each code was the answer."""
    return Counter(one.code for one in await asyncio.gather(*(_send_beat(layout, lines[one], one) for one in members)))


async def _send_beat(layout: Layout, line: RemotingConnection, member: Member) -> RemotingCommand:
    return await _ask(line, RequestCode.BROKER_HEARTBEAT, replace(layout.heartbeat(member), timeout_ms=_SILENCE_MS))


async def _ask(
    line: RemotingConnection, code: int, fields: Request | None = None, body: bytes = b""
) -> RemotingCommand:
    ext = {} if fields is None else fields.encode()
    return await line.request(RemotingCommand(code, ext, body), _ANSWER_S)


def _check(answer: RemotingCommand) -> None:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
