"""Sends and pulls over remoting: processor time of the server a message, beside a reference broker too.

One client for both: raw requests on one connection, 1 and 64 in flight, 100-byte bodies, both servers with
asynchronous flushes. The reference is asked in turns with ours, after it had time to compile itself.

Our client spends more time on a pull of 32 than a server does. How fast servers are with 64 in flight is therefore
asked by `frame_load.py` as well, which sends prepared frames and counts answers: `..._by_frames`.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from interop.driver import Missing
from interop.reference.servers import ReferenceServers

from benchmarks.frame_load import IN_FLIGHT, PULLED, FrameLoad
from millstream.model.message import Address
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.settings import topic_fields
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import HeaderType, RemotingCommand
from millstream.server.child import ServerProcess
from millstream.telemetry.processes import ProcessTree
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["measure_reference", "measure_remoting"]

_TOPIC = "bench"
_BODY = b"x" * 100
_FRAMES_S = 3.0
_ROUNDS = 3
_WARM_UP = 20_000
_TIMEOUT_S = 30.0
_IN_FLIGHT = (1, 64)
_SHORT = {"a": "bench", "b": _TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "h": "0", "i": "", "m": "false"}
_PULL = {
    "consumerGroup": "bench", "topic": _TOPIC, "queueId": "0", "sysFlag": "4", "commitOffset": "0",
    "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
}  # fmt: skip

Found = dict[str, Any]


def measure_remoting(count: int = 20_000) -> dict[str, object]:
    """Microseconds of the server a message for sends and pulls, one at a time and 64 in flight; messages a second."""
    with tempfile.TemporaryDirectory() as scratch, ServerProcess(Path(scratch) / "data") as server:
        return asyncio.run(_measured(server.addresses.broker, server.pid, count, _WARM_UP // 10))


def measure_reference(count: int = 20_000) -> dict[str, object]:
    """The same of both brokers in turns: medians, and ours divided by the reference's."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            reference = ReferenceServers(Path(scratch) / "reference")
        except Missing as missing:
            return {"skipped": str(missing)}
        with reference, ServerProcess(Path(scratch) / "data") as server:
            there = (reference.broker, reference.broker_process.pid)
            here = (server.addresses.broker, server.pid)
            rounds: dict[str, list[Found]] = {"ours": [], "reference": []}
            for number in range(_ROUNDS):
                for name, (address, pid) in (("reference", there), ("ours", here)):
                    warm_up = 0 if number else _WARM_UP
                    found = asyncio.run(_measured(address, pid, count, warm_up))
                    rounds[name].append({**found, **_measure_by_frames(address, pid)})
    return _compared(rounds)


def _measure_by_frames(address: str, pid: int) -> Found:
    found: Found = {}
    for kind, name in (("send", "send"), ("pull", f"pull_{PULLED}")):
        with FrameLoad(address, _TOPIC, kind, _FRAMES_S) as load:
            before_s = _cpu_s(pid)
            load.begin()
            loaded = load.found()
            cpu_s = _cpu_s(pid) - before_s
        found[f"{name}_{IN_FLIGHT}_in_flight_by_frames"] = {
            "messages_per_s": round(loaded["messages"] / loaded["seconds"]),
            "server_cpu_us_per_message": round(cpu_s / loaded["messages"] * 1e6, 2),
            "load_cpu_us_per_message": round(loaded["cpu_s"] / loaded["messages"] * 1e6, 2),
        }
    return found


def _compared(rounds: dict[str, list[Found]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for job in rounds["ours"][0]:
        middle = {
            name: {what: statistics.median(one[job][what] for one in taken) for what in taken[0][job]}
            for name, taken in rounds.items()
        }
        found[job] = {
            **middle,
            "rate_ratio": round(middle["ours"]["messages_per_s"] / middle["reference"]["messages_per_s"], 2),
            "cpu_ratio": round(
                middle["ours"]["server_cpu_us_per_message"]
                / max(middle["reference"]["server_cpu_us_per_message"], 0.1),
                2,
            ),
        }
    return found


async def _measured(address: str, pid: int, count: int, warm_up: int) -> Found:
    host, _, port = address.rpartition(":")
    connection = await RemotingConnection.open(Address(host, int(port)))
    try:
        create = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TopicConfig(_TOPIC)))
        _good(await connection.request(create, _TIMEOUT_S))
        if warm_up:
            await _window(connection, _sends(warm_up), max(_IN_FLIGHT))
            await _window(connection, _pulls(warm_up // PULLED, PULLED), max(_IN_FLIGHT))
        found: Found = {}
        for in_flight in _IN_FLIGHT:
            here = count if in_flight > 1 else count // 5
            jobs: dict[str, tuple[Callable[[], Iterable[RemotingCommand]], int]] = {
                "send": (lambda here=here: _sends(here), here),
                "pull_1": (lambda here=here: _pulls(here // 2, 1), here // 2),
                f"pull_{PULLED}": (lambda here=here: _pulls(here // 4, PULLED), here // 4 * PULLED),
            }
            for name, (commands, messages) in jobs.items():
                found[f"{name}_{in_flight}_in_flight"] = await _counted(
                    connection, commands(), messages, in_flight, pid
                )
        return found
    finally:
        await connection.close()


async def _counted(
    connection: RemotingConnection, commands: Iterable[RemotingCommand], messages: int, in_flight: int, pid: int
) -> Found:
    before_s, began_s = _cpu_s(pid), time.perf_counter()
    await _window(connection, commands, in_flight)
    seconds = time.perf_counter() - began_s
    return {
        "messages_per_s": round(messages / seconds),
        "server_cpu_us_per_message": round((_cpu_s(pid) - before_s) / messages * 1e6, 1),
    }


async def _window(connection: RemotingConnection, commands: Iterable[RemotingCommand], in_flight: int) -> None:
    """Send the commands with so many unanswered at a time."""
    waiting = iter(commands)

    async def work() -> None:
        for command in waiting:
            _good(await connection.submit(command, _TIMEOUT_S))

    await asyncio.gather(*(work() for _ in range(in_flight)))


def _good(answer: RemotingCommand) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise RuntimeError(f"the broker answered code {answer.code}: {answer.remark}")


def _sends(count: int) -> Iterable[RemotingCommand]:
    for _ in range(count):
        ext = {**_SHORT, "g": str(int(time.time() * 1000))}
        yield RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext, _BODY, header_type=HeaderType.JSON)


def _pulls(count: int, messages: int) -> Iterable[RemotingCommand]:
    """Over what was sent first, from its beginning on, again and again."""
    for number in range(count):
        offset = str(number * messages % (_WARM_UP // 10 - PULLED))
        yield RemotingCommand(RequestCode.PULL_MESSAGE, {**_PULL, "queueOffset": offset, "maxMsgNums": str(messages)})


def _cpu_s(pid: int) -> float:
    return sum(one.cpu_s for one in ProcessTree([pid]).sample() or [])
