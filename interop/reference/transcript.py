"""Plays a script against servers and keeps the answers in their normal form; reads and writes them as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from interop.reference.normal_form import normal_answer
from interop.reference.steps import BROKER, NAMESERVER, Step, filled_in
from millstream.model.errors import ConnectionFailed, TimedOut, Unreachable
from millstream.model.message import Address
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.command import RemotingCommand
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["Played", "Servers", "play", "read_transcript", "write_transcript"]

ANSWER_TIMEOUT_S = 20.0
TOLD_TIMEOUT_S = 10.0
UNTIL_TIMEOUT_S = 20.0
_UNTIL_PAUSE_S = 0.1
_MISSING = "0"
"""What stands for a value that an earlier step did not bring; that step differs already."""

_LOG_OFFSET_IN_ID = slice(16, 32)


class Servers(msgspec.Struct, frozen=True):
    """Where a script is played, as `host:port`."""

    broker: str
    nameserver: str


class Played(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step and its answer in normal form."""

    step: Step
    answer: dict[str, Any]


async def play(steps: Sequence[Step], servers: Servers) -> list[Played]:
    """Each step with its answer, in order."""
    player = _Player(servers)
    try:
        return [Played(step, await player.take(step)) for step in steps]
    finally:
        await player.close()


def write_transcript(path: Path, played: Sequence[Played]) -> None:
    """As JSON, one line for each step and each answer, so that a diff shows what has changed."""
    lines = [f'{{"step":{_encoded(one.step)},\n "answer":{_encoded(one.answer)}}}' for one in played]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def read_transcript(path: Path) -> list[Played]:
    """What `write_transcript` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=list[Played])


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class _Player:
    def __init__(self, servers: Servers) -> None:
        self._addresses = {BROKER: servers.broker, NAMESERVER: servers.nameserver}
        self._ports = {int(address.rpartition(":")[2]): name for name, address in self._addresses.items()}
        self._connections: dict[tuple[str, str], RemotingConnection] = {}
        self._told: dict[tuple[str, int], asyncio.Queue[RemotingCommand]] = {}
        self._brought: dict[str, RemotingCommand] = {}

    async def take(self, step: Step) -> dict[str, Any]:
        if step.is_told:
            return await self._listen(step)
        give_up_s = asyncio.get_running_loop().time() + UNTIL_TIMEOUT_S
        while True:
            answer = await self._ask(step)
            is_there = answer is None or (answer.code == step.until and (bool(answer.body) or not step.until_body))
            if step.until is None or is_there or asyncio.get_running_loop().time() > give_up_s:
                break
            await asyncio.sleep(_UNTIL_PAUSE_S)
        if answer is None:
            return {"none": True}
        self._brought[step.name] = answer
        return normal_answer(answer, step.shows, self._ports)

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()

    async def _ask(self, step: Step) -> RemotingCommand | None:
        """None where there is no answer: to a oneway request, or because the connection is closed."""
        connection = await self._connection(step.to, step.client)
        ext = {key: filled_in(value, self._value) for key, value in step.ext.items()}
        command = RemotingCommand(step.code, ext, filled_in(step.body, self._value).encode("latin-1"), language="JAVA")
        if step.oneway:
            connection.notify(command)
            return None
        try:
            return await connection.request(command, ANSWER_TIMEOUT_S)
        except (Unreachable, ConnectionFailed, TimedOut):
            self._connections.pop((step.to, step.client), None)
            return None

    async def _listen(self, step: Step) -> dict[str, Any]:
        try:
            async with asyncio.timeout(TOLD_TIMEOUT_S):
                said = await self._queue(step.client, step.code).get()
        except TimeoutError:
            return {"none": True}
        self._brought[step.name] = said
        return normal_answer(said, step.shows, self._ports)

    async def _connection(self, to: str, client: str) -> RemotingConnection:
        connection = self._connections.get((to, client))
        if connection is None or not connection.is_open:
            host, _, port = self._addresses[to].rpartition(":")
            connection = await RemotingConnection.open(Address(host, int(port)))
            connection.listener = lambda command: self._hear(client, command)
            self._connections[to, client] = connection
        return connection

    def _hear(self, client: str, command: RemotingCommand) -> None:
        self._queue(client, command.code).put_nowait(command)

    def _queue(self, client: str, code: int) -> asyncio.Queue[RemotingCommand]:
        return self._told.setdefault((client, code), asyncio.Queue())

    def _value(self, name: str) -> str:
        step, _, field = name.partition(".")
        try:
            return _part(self._brought[step], field)
        except (LookupError, ValueError):
            return _MISSING


def _part(answer: RemotingCommand, field: str) -> str:
    """A field of an answer, or what follows from it: `logOffset` of the message that was sent or found first,
    `storeTimestamp` of the latter, `handle` of the first message that was popped."""
    if field == "logOffset":
        if "msgId" in answer.ext:
            return str(int(answer.ext["msgId"].split(",")[0][_LOG_OFFSET_IN_ID], 16))
        return str(_first(answer.body).log_offset)
    if field == "storeTimestamp":
        return str(_first(answer.body).store_timestamp_ms)
    if field == "handle":
        return _handle(answer.ext, answer.body)
    return answer.ext[field]


def _first(body: bytes) -> Any:
    return decode_record(bytes(list(iterate_records(body))[0]), verify=False)  # noqa: RUF015 - no StopIteration


def _handle(ext: Mapping[str, str], body: bytes) -> str:
    """What an acknowledgement says of the first message of a pop, as clients put it together."""
    message = _first(body)
    retry, queue, start = ext["startOffsetInfo"].split(";")[0].split(" ")
    return " ".join((
        start, ext["popTime"], ext["invisibleTime"], ext["reviveQid"], retry, "broker-a", queue,
        str(message.queue_offset),
    ))  # fmt: skip
