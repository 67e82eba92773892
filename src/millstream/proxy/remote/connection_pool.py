"""The proxy's connections to its brokers: one for immediate requests, others for long polling."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from millstream.client.client import Client
from millstream.client.failover import check_master
from millstream.model.errors import ConnectionFailed, MillstreamError, NotConnected, Unreachable
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.refusals import error_of
from millstream.security.signature import Credentials
from millstream.transport.remoting_client import Listener, RemotingConnection

__all__ = [
    "ASK_TIMEOUT_S",
    "CONNECT_TIMEOUT_S",
    "FORGOTTEN_S",
    "MAX_WAITING_PER_CONNECTION",
    "RETRY_S",
    "SLOW_S",
    "BrokerCallbacks",
    "BrokerConnectionPool",
    "Hear",
    "UnreachableBrokers",
    "check_success",
    "gather_until_deadline",
]


_T = TypeVar("_T")


async def gather_until_deadline(works: Iterable[Coroutine[Any, Any, _T]], timeout_s: float) -> list[_T]:
    """What the works give that end within `timeout_s`, in their order; the others go on to their end, unheard.

    An error of one that ends in time is raised.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    if not tasks:
        return []
    done, late = await asyncio.wait(tasks, timeout=timeout_s)
    for task in late:
        task.add_done_callback(_consume_error)
    return [task.result() for task in tasks if task in done]


def _consume_error(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


Hear = Callable[[RemotingCommand], "Awaitable[RemotingCommand | None] | RemotingCommand | None"]
"""Answers one request of a broker; None answers nothing."""


class BrokerCallbacks:
    """Those who hear, by request code."""

    def __init__(self) -> None:
        self.by_code: dict[int, Hear] = {}

    def answer(self, command: RemotingCommand) -> Awaitable[RemotingCommand | None] | RemotingCommand | None:
        """The answer to give to the broker."""
        hear = self.by_code.get(command.code)
        if hear is None:
            return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="Not known to this proxy.")
        return hear(command)


SLOW_S: Final = 0.5
"""Seconds of a failed attempt to connect from which on the next requests fail without an attempt of their own."""

RETRY_S: Final = 1.0
"""Seconds between two attempts in the background."""

FORGOTTEN_S: Final = 60.0
"""Seconds after the last request for it that a broker is tried no longer."""

Connect = Callable[[str], Awaitable[RemotingConnection]]


class UnreachableBrokers:
    """Connects by `connect`, which takes an address and gives the open connection or raises Unreachable."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._asked_s: dict[str, float] = {}
        self._trying: dict[str, asyncio.Task[None]] = {}

    async def connection(self, address: str, connect: Connect | None = None) -> RemotingConnection:
        """A connection to a broker, by `connect` if it is given; NotConnected at once where it was silent of late."""
        now_s = asyncio.get_running_loop().time()
        if address in self._trying:
            self._asked_s[address] = now_s
            raise NotConnected(f"{address} did not answer of late.")
        try:
            return await (connect or self._connect)(address)
        except Unreachable:
            if asyncio.get_running_loop().time() - now_s >= SLOW_S and address not in self._trying:
                self._asked_s[address] = now_s
                self._trying[address] = asyncio.create_task(self._try(address), name=f"try-{address}")
            raise

    def close(self) -> None:
        """Try none any longer."""
        for task in self._trying.values():
            task.cancel()

    async def _try(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            while loop.time() - self._asked_s[address] < FORGOTTEN_S:
                await asyncio.sleep(RETRY_S)
                try:
                    await self._connect(address)
                except MillstreamError:
                    continue
                return
        finally:
            del self._trying[address], self._asked_s[address]


ASK_TIMEOUT_S: Final = 5.0
"""Seconds that a broker has to answer, beside the time that a request may wait for messages."""

CONNECT_TIMEOUT_S: Final = 2.0
"""Seconds that a connection to a broker or nameserver may take."""

MAX_WAITING_PER_CONNECTION: Final = 4096
"""Requests that wait for messages on one connection at most; the next one takes another connection. Half of what a
broker lets wait before it stops reading."""


class BrokerConnectionPool:
    """Connections by address. `nameservers` as `host:port`, several separated by `;`."""

    def __init__(
        self,
        nameservers: str,
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.on_doubt: Callable[[str], None] = _ignore
        """Called with the address where no master may be any more: it refuses, is silent or closed a connection."""
        self.on_answer: Callable[[str], None] = _ignore
        """Called with the address that has answered as a master does."""
        self._nameservers = nameservers
        self._others: dict[str, Client] = {}
        self._credentials = credentials
        self._tls = tls
        self.client = self._lane(listener)
        """For what is answered at once; the brokers' own questions come here."""
        self._waiting: list[tuple[Client, dict[str, int]]] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._unheard = UnreachableBrokers(self.client.connection)

    async def ask_nameserver(self, command: RemotingCommand, nameservers: str = "") -> RemotingCommand:
        """The answer of one of the nameservers (blank: the own ones); what another one than success stands for is
        raised."""
        client = self.client
        if nameservers and nameservers != self._nameservers:
            found = self._others.get(nameservers)
            client = self._others[nameservers] = found or self._lane(None, nameservers)
        return await client.run(client.conversations.ask_nameserver(command))

    async def close(self) -> None:
        """Close all connections; what is under way fails as Unreachable."""
        self._unheard.close()
        await self.client.close()
        for other in self._others.values():
            await other.close()
        for lane, _ in self._waiting:
            await lane.close()

    async def ask(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """The answer to a request, whatever its code but NOT_MASTER. Raises Unreachable, TimedOut as well."""
        connection = await self.connection(address)
        began_s = asyncio.get_running_loop().time()
        try:
            answer = check_master(await connection.request(command, ASK_TIMEOUT_S), address)
        except ConnectionFailed:
            self.on_doubt(address)
            raise
        except asyncio.CancelledError:
            if asyncio.get_running_loop().time() - began_s >= SLOW_S:
                self.on_doubt(address)
            raise
        self.on_answer(address)
        return answer

    async def connection(self, address: str) -> RemotingConnection:
        """The connection to a broker on which it is asked, and asks. Raises Unreachable."""
        return await self._connect(address, self.client)

    async def _connect(self, address: str, lane: Client) -> RemotingConnection:
        try:
            return await self._unheard.connection(address, lane.connection)
        except ConnectionFailed:
            self.on_doubt(address)
            raise

    async def demand(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """The answer to a request that succeeded; what another answer stands for is raised."""
        return check_success(await self.ask(address, command), address)

    async def ask_all(
        self, addresses: Iterable[str], make: Callable[[], RemotingCommand]
    ) -> list[tuple[str, RemotingCommand | MillstreamError]]:
        """What each answers, whatever its code, or why it does not."""
        return await _each(addresses, make, self.ask)

    async def demand_all(
        self, addresses: Iterable[str], make: Callable[[], RemotingCommand]
    ) -> list[tuple[str, RemotingCommand | MillstreamError]]:
        """What each answers that succeeds; what stands for another answer, or why there is none."""
        return await _each(addresses, make, self.demand)

    async def submit(self, address: str, command: RemotingCommand, wait_ms: int) -> asyncio.Future[RemotingCommand]:
        """The future answer, whatever its code, to a request that may wait for messages. Unreachable.

        To cancel it is to lose the answer, which the broker gives all the same.
        """
        if wait_ms <= 0:
            answer = (await self.connection(address)).submit(command, ASK_TIMEOUT_S)
            answer.add_done_callback(partial(self._note_answer, address))
            return answer
        lane, counts = self._with_room(address)
        counts[address] = counts.get(address, 0) + 1
        try:
            connection = await self._connect(address, lane)
        except BaseException:
            _release(counts, address)
            raise
        answer = connection.submit(command, ASK_TIMEOUT_S + wait_ms / 1000)
        answer.add_done_callback(lambda _: _release(counts, address))
        answer.add_done_callback(partial(self._note_answer, address))
        return answer

    def leave(self, address: str) -> None:
        """End what waits for messages at a broker that is the master no longer; it fails as Unreachable."""
        for lane, _ in self._waiting:
            task = asyncio.ensure_future(lane.disconnect(address))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    def _note_answer(self, address: str, answering: asyncio.Future[RemotingCommand]) -> None:
        if answering.cancelled():
            return
        if answering.exception() is None and answering.result().code != ResponseCode.SERVICE_NOT_AVAILABLE:
            self.on_answer(address)
        else:
            self.on_doubt(address)

    def _note_lost(self, address: str) -> None:
        self.on_doubt(address)

    def open_connections(self) -> dict[str, RemotingConnection]:
        """The connections by address on which brokers hear from the proxy first."""
        return self.client.open_connections()

    def _with_room(self, address: str) -> tuple[Client, dict[str, int]]:
        for lane, counts in self._waiting:
            if counts.get(address, 0) < MAX_WAITING_PER_CONNECTION:
                return lane, counts
        made: tuple[Client, dict[str, int]] = (self._lane(None), {})
        self._waiting.append(made)
        return made

    def _lane(self, listener: Listener | None, nameservers: str = "") -> Client:
        return Client(
            nameservers or self._nameservers,
            timeout_s=ASK_TIMEOUT_S,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            credentials=self._credentials,
            tls=self._tls,
            listener=listener,
            on_lost=self._note_lost,
        )


def _ignore(address: str) -> None:
    """Nobody wants to know."""


async def _each(
    addresses: Iterable[str],
    make: Callable[[], RemotingCommand],
    ask: Callable[[str, RemotingCommand], Awaitable[RemotingCommand]],
) -> list[tuple[str, RemotingCommand | MillstreamError]]:
    untried = list(addresses)
    answers = await asyncio.gather(*(ask(address, make()) for address in untried), return_exceptions=True)
    found: list[tuple[str, RemotingCommand | MillstreamError]] = []
    for address, answer in zip(untried, answers, strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, MillstreamError):
            raise answer
        found.append((address, answer))
    return found


def _release(counts: dict[str, int], address: str) -> None:
    counts[address] -= 1
    if not counts[address]:
        del counts[address]


def check_success(answer: RemotingCommand, address: str) -> RemotingCommand:
    """The answer, if it is a success; the error that it stands for is raised."""
    if answer.code != ResponseCode.SUCCESS:
        raise error_of(answer, address)
    return answer
