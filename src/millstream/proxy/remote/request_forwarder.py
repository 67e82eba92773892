"""Requests of remoting clients on their way to brokers: each as it came, with opaque and signature of the proxy."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from millstream.model.errors import ConnectionFailed, ConsumeRefused, MillstreamError, NameRefused
from millstream.protocol.remoting.codes import ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.refusals import error_of
from millstream.proxy.remote.connection_pool import BrokerConnectionPool
from millstream.proxy.remote.routes import KnownRoute, RouteCache

__all__ = ["RequestForwarder"]


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

        async def ask(known: KnownRoute) -> RemotingCommand:
            address = known.address(broker_name, queue_id)
            try:
                answer = await (await self._lanes.submit(address, _copy(command), wait_ms))
            except ConnectionFailed as error:
                self._routes.doubt(topic, error)
                raise
            if answer.code == ResponseCode.NOT_LEADER_FOR_QUEUE:
                raise error_of(answer, address)
            return answer

        return await self._routes.following(topic, ask)

    async def to_holder(self, topic: str, broker_name: str, command: RemotingCommand) -> RemotingCommand:
        """The answer of the broker that holds a message already. INVALID_RECEIPT_HANDLE where there is none."""
        return await self._lanes.ask(await self.holder(topic, broker_name), _copy(command))

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
        masters = await self.masters()
        found = [address for name, address in masters if name == broker_name]
        if not broker_name and len(masters) == 1:
            found = [masters[0][1]]
        if not found:
            raise NameRefused("QUEUE_NOT_FOUND", f"There is no broker {broker_name[:80]!r} behind this proxy.")
        return await self._lanes.ask(found[0], _copy(command))

    async def to_nameservers(self, topic: str, command: RemotingCommand) -> list[RemotingCommand]:
        """The answers of those nameservers that know the topic's cluster. Unreachable where none answers."""
        return await self.to_all(self._routes.nameservers(topic), command)

    async def masters(self) -> list[tuple[str, str]]:
        """Name and address of all masters of all clusters."""
        return await self._routes.masters()


def _copy(command: RemotingCommand) -> RemotingCommand:
    """The connection numbers and signs what it sends, so each attempt sends a command of its own."""
    return RemotingCommand(
        command.code, dict(command.ext), command.body, language=command.language, version=command.version
    )
