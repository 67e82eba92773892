"""Forwards requests of remoting clients to brokers unchanged, with the proxy's opaque and signature."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from millstream.client.failover import check_master, has_lost_master, was_not_done
from millstream.model.errors import ConnectionFailed, ConsumeRefused, MillstreamError, NameRefused
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.refusals import error_of
from millstream.proxy.remote.connection_pool import BrokerConnectionPool
from millstream.proxy.remote.routes import KnownRoute, RouteCache

__all__ = ["FORWARD_S", "REPEATABLE", "RequestForwarder", "may_repeat_code"]

FORWARD_S: Final = 2.5
"""Seconds for which a forwarded request looks for its broker's new master: RocketMQ's clients, which do not tell how
long they wait, hear why it failed before they give up after 3 s."""

REPEATABLE: Final = frozenset(
    (
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.END_TRANSACTION,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME,
        RequestCode.NOTIFICATION,
    )
)
"""Codes of requests that may be sent again although the first one may have been carried out: what they read or set is
the same then, and a delivery whose answer was lost comes again."""

_PULL_WAIT: Final = "suspendTimeoutMillis"


class RequestForwarder:
    """Gives the brokers' answers, whatever their codes. Raises Unreachable, TimedOut."""

    def __init__(self, lanes: BrokerConnectionPool, routes: RouteCache) -> None:
        self._lanes = lanes
        self._routes = routes

    async def to_queue(
        self, topic: str, broker_name: str, command: RemotingCommand, wait_ms: int = 0, queue_id: int | None = None
    ) -> RemotingCommand:
        """The answer of the topic's broker of that name; blank means the only one.

        In a static topic `queue_id` says which broker that is, also where the queue moves meanwhile. Raises
        TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, NOT_LEADER_FOR_QUEUE.
        """

        deadline_s = _deadline_s(wait_ms)

        async def ask(known: KnownRoute) -> RemotingCommand:
            address = known.address(broker_name, queue_id)
            try:
                copy = _copy(command, _left_ms(wait_ms, deadline_s))
                answer = check_master(await (await self._lanes.submit(address, copy, wait_ms)), address)
            except ConnectionFailed as error:
                self._routes.doubt(topic, error)
                raise
            if answer.code == ResponseCode.NOT_LEADER_FOR_QUEUE:
                raise error_of(answer, address)
            return answer

        return await self._routes.following(topic, ask, may_repeat_code(command.code), deadline_s)

    async def to_holder(self, topic: str, broker_name: str, command: RemotingCommand) -> RemotingCommand:
        """The answer of the broker that holds a message already. INVALID_RECEIPT_HANDLE where there is none."""
        may_repeat = may_repeat_code(command.code)
        return await self.at_holder(
            topic, broker_name, lambda address: self._lanes.ask(address, _copy(command)), may_repeat, _deadline_s()
        )

    async def at_holder(
        self,
        topic: str,
        broker_name: str,
        act: Callable[[str], Awaitable[RemotingCommand]],
        may_repeat: Callable[[MillstreamError], bool] = has_lost_master,
        deadline_s: float | None = None,
    ) -> RemotingCommand:
        """What `act` gets from the address of a delivery's broker, again where that changes; see
        `RouteCache.repeating`."""

        async def attempt() -> RemotingCommand:
            return await act(await self.holder(topic, broker_name))

        return await self._routes.repeating(topic, attempt, may_repeat, deadline_s)

    async def holder(self, topic: str, broker_name: str) -> str:
        """Where the broker of a delivery is; INVALID_RECEIPT_HANDLE."""
        try:
            address = (await self._routes.get(topic)).addresses.get(broker_name)
            if address is None:
                address = (await self._routes.refresh(topic)).addresses.get(broker_name)
        except NameRefused:
            address = None
        if address is None:
            raise ConsumeRefused(
                "INVALID_RECEIPT_HANDLE", f"There is no broker {broker_name[:80]!r} behind this proxy."
            )
        return address

    async def to_all(self, addresses: Iterable[str], command: RemotingCommand) -> list[RemotingCommand]:
        """The answers of those brokers that give one. Unreachable where none does."""
        return [answer for _, answer in await self.to_each(addresses, command)]

    async def to_each(self, addresses: Iterable[str], command: RemotingCommand) -> list[tuple[str, RemotingCommand]]:
        """The same with the addresses."""
        answers = await self._lanes.ask_all(addresses, partial(_copy, command))
        given = [(address, answer) for address, answer in answers if isinstance(answer, RemotingCommand)]
        if answers and not given:
            raise next(error for _, error in answers if isinstance(error, MillstreamError))
        return given

    async def to_master(self, broker_name: str, command: RemotingCommand) -> RemotingCommand:
        """The answer of a broker, whatever it holds; QUEUE_NOT_FOUND where there is none of that name."""

        async def ask() -> RemotingCommand:
            masters = await self.masters()
            found = [address for name, address in masters if name == broker_name]
            if not broker_name and len(masters) == 1:
                found = [masters[0][1]]
            if not found:
                raise NameRefused("QUEUE_NOT_FOUND", f"There is no broker {broker_name[:80]!r} behind this proxy.")
            return await self._lanes.ask(found[0], _copy(command))

        return await self._routes.repeating("", ask, may_repeat_code(command.code), _deadline_s())

    async def to_nameservers(self, topic: str, command: RemotingCommand) -> list[RemotingCommand]:
        """The answers of those nameservers that know the topic's cluster. Unreachable where none answers."""
        return await self.to_all(self._routes.nameservers(topic), command)

    async def masters(self) -> list[tuple[str, str]]:
        """Name and address of all masters of all clusters."""
        return await self._routes.masters()


def may_repeat_code(code: int) -> Callable[[MillstreamError], bool]:
    """Which failures of a request of that code let it be sent again."""
    return has_lost_master if code in REPEATABLE else was_not_done


def _deadline_s(wait_ms: int = 0) -> float:
    """Until when a request may look for a master, in the event loop's time."""
    return asyncio.get_running_loop().time() + max(FORWARD_S, wait_ms / 1000)


def _left_ms(wait_ms: int, deadline_s: float) -> int | None:
    """Milliseconds that a request that waits may wait still; None for one that does not."""
    left_ms = int((deadline_s - asyncio.get_running_loop().time()) * 1000)
    return max(1, min(wait_ms, left_ms)) if wait_ms > 0 else None


def _copy(command: RemotingCommand, wait_ms: int | None = None) -> RemotingCommand:
    """The connection numbers and signs what it sends, so each attempt sends a command of its own."""
    ext = dict(command.ext)
    if wait_ms is not None and _PULL_WAIT in ext:
        # Pops count their wait from when the client asked.
        ext[_PULL_WAIT] = str(wait_ms)
    return RemotingCommand(command.code, ext, command.body, language=command.language, version=command.version)
