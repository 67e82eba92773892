"""Routes for remoting clients: every broker has this proxy's address."""

from __future__ import annotations

from typing import Final

from millstream.broker.queues.topics import RETRY_PREFIX
from millstream.model.errors import NameRefused
from millstream.model.message import Address
from millstream.protocol.remoting.administration.topic_requests import TopicQuery
from millstream.protocol.remoting.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.proxy.remote.backend import RemoteBackend
from millstream.proxy.remote.routes import MASTER_ID
from millstream.proxy.remoting.queue_numbers import FIRST_NAMING_VERSION, QueueNumbers
from millstream.transport.remoting_connection import Connection

__all__ = ["ProxyRouteHandlers"]

_CLUSTER: Final = "DefaultCluster"


class ProxyRouteHandlers:
    """Code 105, for clients that reach this proxy at `announced`."""

    def __init__(self, backend: RemoteBackend, numbers: QueueNumbers, announced: Address) -> None:
        self._backend = backend
        self._numbers = numbers
        self._address = f"{announced.host}:{announced.port}"

    async def route(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        topic = TopicQuery.decode(command.ext).topic
        try:
            known = await self._backend.known_route(topic)
            if command.version < FIRST_NAMING_VERSION:
                return command.response(body=encode_body((await self._numbers.get(known)).route(self._address)))
            data = known.data
        except NameRefused:
            if not topic.startswith(RETRY_PREFIX):
                raise
            data = await self._retry_route()
        return command.response(body=encode_body(self._route_data_of(data)))

    async def _retry_route(self) -> TopicRouteData:
        """For a group's retry topic, which need not be there: what the group is to get again comes from its topics."""
        names = sorted({name for name, _ in await self._backend.passage.masters()})
        return TopicRouteData(
            [BrokerData(name, {MASTER_ID: ""}, _CLUSTER) for name in names], [QueueData(name, 1, 1) for name in names]
        )

    def _route_data_of(self, data: TopicRouteData) -> TopicRouteData:
        held = {queue.broker_name for queue in data.queue_datas}
        brokers = [
            BrokerData(broker.broker_name, {MASTER_ID: self._address}, broker.cluster)
            for broker in data.broker_datas
            if MASTER_ID in broker.broker_addrs and broker.broker_name in held
        ]
        return TopicRouteData(
            brokers,
            data.queue_datas,
            order_topic_conf=data.order_topic_conf,
            topic_queue_mapping_by_broker=data.topic_queue_mapping_by_broker,
        )
