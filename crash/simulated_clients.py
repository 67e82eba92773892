"""Clients of a simulated set: they send, commit offsets, and note what they were answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from crash.simulated_cluster import BROKER_NAME, NAMESERVER, SimulatedCluster
from crash.simulated_network import SimulatedProcess
from millstream.controller.broker_calls import address_of
from millstream.model.errors import MillstreamError, Unreachable
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.settings import topic_fields
from millstream.protocol.remoting.bodies import BrokerMemberGroupBody, decode_body
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.offsets import (
    GroupOffset,
    OffsetQuery,
    encode_group_offset,
    encode_offset_query,
)
from millstream.protocol.remoting.messages.sends import encode_send
from millstream.protocol.remoting.refusals import error_of
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["GROUP", "QUEUES", "TOPIC", "Receipt", "SimulatedClient"]

TOPIC: Final = "orders"
GROUP: Final = "readers"
QUEUES: Final = 2
_ANSWER_S: Final = 4.0
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Receipt:
    """An acknowledged message: its place, where in the log that is, and when the answer came."""

    queue_id: int
    queue_offset: int
    log_offset: int
    body: bytes
    acked_s: float


class SimulatedClient:
    """Sends one message after the other to whom it takes for the master. `on_ack` and `on_commit` hear of answers."""

    def __init__(self, cluster: SimulatedCluster, number: int, choose: random.Random) -> None:
        self.number = number
        self.acked = 0
        self.on_ack: Callable[[Receipt], None] = lambda _: None
        self.on_commit: Callable[[int, float], None] = lambda _offset, _now_s: None
        self._cluster = cluster
        self._choose = choose
        self.process = SimulatedProcess(f"10.0.4.{number}")
        self._master: str | None = None
        self._connection: RemotingConnection | None = None
        self._sent = 0
        self._highest = 0
        self._has_topic = False

    def start(self) -> asyncio.Task[None]:
        """Send from now on, until the task is cancelled."""
        return self.process.context.copy().run(self._cluster.loop.create_task, self._run())

    def ask_offset(self) -> asyncio.Task[int | None]:
        """The committed offset of the first queue, as the master has it now; None where there is none."""
        return self.process.context.copy().run(self._cluster.loop.create_task, self._query())

    # inside

    async def _run(self) -> None:
        while True:
            try:
                await self._act()
            except MillstreamError:
                self._forget()
            await asyncio.sleep(self._choose.expovariate(1 / _PAUSE_S))

    async def _act(self) -> None:
        if not self._has_topic:
            config = TopicConfig(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
            fields = topic_fields(config) | {"createOnly": "false"}
            await self._demand(RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
            self._has_topic = True
        elif self.number == 1 and self._highest and self._choose.random() < 0.3:
            # One alone: an offset that another one commits later counts, also where it is lower.
            await self._commit()
        else:
            await self._send()

    async def _send(self) -> None:
        self._sent += 1
        body = b"%d.%d " % (self.number, self._sent) + b"x" * self._choose.randrange(600)
        queue_id = self._choose.randrange(QUEUES)
        fields = encode_send(TOPIC, queue_id, BROKER_NAME, "", group="senders", born_ms=0, is_batch=False)
        answer = await self._demand(RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body))
        queue_offset, log_offset = int(answer.ext["queueOffset"]), int(answer.ext["msgId"][-16:], 16)
        self.acked += 1
        if queue_id == 0:
            self._highest = max(self._highest, queue_offset + 1)
        self.on_ack(Receipt(queue_id, queue_offset, log_offset, body, self._now_s()))

    async def _commit(self) -> None:
        offset = self._highest
        fields = encode_group_offset(GroupOffset(GROUP, TOPIC, 0, offset))
        await self._demand(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
        self.on_commit(offset, self._now_s())

    async def _query(self) -> int | None:
        for _ in range(20):
            fields = encode_offset_query(OffsetQuery(GROUP, TOPIC, 0, or_first=False))
            try:
                answer = await self._ask(RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, fields))
            except MillstreamError:
                self._forget()
                await asyncio.sleep(_PAUSE_S)
                continue
            if answer.code == ResponseCode.SUCCESS:
                return int(answer.ext["offset"])
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            self._forget()
            await asyncio.sleep(_PAUSE_S)
        return None

    async def _demand(self, command: RemotingCommand) -> RemotingCommand:
        answer = await self._ask(command)
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(answer, str(self._master))
        return answer

    async def _ask(self, command: RemotingCommand) -> RemotingCommand:
        if self._connection is None or not self._connection.is_open:
            self._master = self._master or await self._find_master()
            self._connection = await RemotingConnection.open(address_of(self._master), timeout_s=1.0)
        return await self._connection.request(command, _ANSWER_S)

    async def _find_master(self) -> str:
        """As the nameserver knows it; now and then any replica, as who has an old route does."""
        if self._choose.random() < 0.3:
            return self._choose.choice(self._cluster.replicas).address
        connection = await RemotingConnection.open(address_of(NAMESERVER), timeout_s=1.0)
        try:
            asked = {"clusterName": "DefaultCluster", "brokerName": BROKER_NAME}
            command = RemotingCommand(RequestCode.GET_BROKER_MEMBER_GROUP, asked)
            answer = await connection.request(command, 1.0)
        finally:
            await connection.close()
        if answer.code == ResponseCode.SUCCESS:
            group = decode_body(BrokerMemberGroupBody, answer.body).broker_member_group
            if 0 in group.broker_addrs:
                return group.broker_addrs[0]
        raise Unreachable("No master is registered.")

    def _forget(self) -> None:
        connection, self._connection, self._master = self._connection, None, None
        if connection is not None and connection._transport is not None:
            connection._transport.abort()

    def _now_s(self) -> float:
        return self._cluster.loop.time()
