"""The nameserver's remoting requests: routes, topics, the cluster, and broker registrations."""

from __future__ import annotations

import asyncio
import logging
import math
import zlib
from collections.abc import Awaitable
from functools import partial
from typing import Final

from millstream.cluster.holders import Claim, ClaimVerdict, Holder, Holders
from millstream.cluster.key_values import ORDER_NAMESPACE, KeyValues
from millstream.cluster.nameserver import (
    FAILOVER_S,
    LEASE_S,
    MASTER_ID,
    MAX_BROKERS,
    MAX_REPLICAS,
    BrokerRegistration,
    RouteRegistry,
)
from millstream.cluster.tools import data_version_of, tool_handlers
from millstream.model.clock import Clock, SystemClock
from millstream.model.errors import ConsumeRefused, MessageRefused, NameRefused, TimedOut, Unreachable
from millstream.model.topic import RETRY_PREFIX
from millstream.protocol.remoting.administration.registration import (
    MAX_COMPRESSION,
    MAX_REGISTRATION_BYTES,
    TELL_ALL_FIELD,
    WHOLE_FIELD,
    decode_registration,
    decode_version,
)
from millstream.protocol.remoting.administration.settings import topics_of
from millstream.protocol.remoting.bodies import (
    ClusterInfo,
    KeyValueTable,
    TopicConfigTable,
    TopicList,
    encode_body,
)
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer, optional_integer, text
from millstream.transport.heavy_work import HEAVY_BYTES, HEAVY_WORK
from millstream.transport.remoting_connection import Connection, Handler

__all__ = ["PROBE_S", "WARNING_INTERVAL_S", "nameserver_handlers"]

_log = logging.getLogger(__name__)

PROBE_S: Final = 3.0
"""Seconds that a broker has to answer a probe, if it missed its heartbeat and another one wants its name."""

WARNING_INTERVAL_S: Final = LEASE_S
"""Seconds at least between two lines in the log about refused brokers of one name."""

_CRC_MASK: Final = 0x7FFF_FFFF


def nameserver_handlers(
    registry: RouteRegistry, *, clock: Clock | None = None, key_values: KeyValues | None = None
) -> dict[int, Handler]:
    """The handlers of a nameserver's port, by request code. `key_values` are what tools keep in it."""
    clock, key_values = clock or SystemClock(), key_values or KeyValues()
    handlers = _Handlers(registry, clock, key_values)
    return {
        **tool_handlers(registry, key_values, clock),
        RequestCode.GET_ROUTE_BY_TOPIC: handlers.route,
        RequestCode.GET_BROKER_CLUSTER_INFO: handlers.cluster_info,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: handlers.topics,
        RequestCode.DELETE_TOPIC_IN_NAMESERVER: handlers.delete_topic,
        RequestCode.REGISTER_BROKER: handlers.register_broker,
        RequestCode.UNREGISTER_BROKER: handlers.unregister_broker,
    }


class _Handlers:
    def __init__(self, registry: RouteRegistry, clock: Clock, key_values: KeyValues) -> None:
        self._registry = registry
        self._key_values = key_values
        self._clock = clock
        self._holders: Holders[Connection] = Holders()
        self._watched: set[Connection] = set()
        """Connections over which brokers registered, which are still open."""
        self._questions: dict[Connection, asyncio.Future[RemotingCommand]] = {}
        self._warn_again_s: dict[str, float] = {}
        registry.on_expired.append(self._let_go)

    def _current(self) -> RouteRegistry:
        self._registry.expire(self._clock.monotonic_s())
        return self._registry

    def route(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        topic = command.ext.get("topic", "")
        registry = self._current()
        route = registry.route(topic)
        if route is None and topic.startswith(RETRY_PREFIX):
            route = registry.retry_route(topic)
        if route is None:
            raise NameRefused("TOPIC_NOT_FOUND", f"The topic {topic[:200]!r} does not exist.")
        route.order_topic_conf = self._key_values.get(ORDER_NAMESPACE, topic)
        return command.response(body=encode_body(route))

    def cluster_info(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        info: ClusterInfo = self._current().cluster_info()
        return command.response(body=encode_body(info))

    def topics(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        return command.response(body=encode_body(TopicList(self._current().topics())))

    def delete_topic(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        self._registry.delete_topic(command.ext.get("topic", ""))
        return command.response()

    def register_broker(
        self, command: RemotingCommand, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        ext = command.ext
        if not self._current().needs_topics(text(ext, "brokerName"), integer(ext, "brokerId"), text(ext, "brokerAddr")):
            return self._admit(command, _registration(command, reads_topics=False), connection)
        is_compressed = ext.get("compressed") == "true"
        if is_compressed or len(command.body) > HEAVY_BYTES:
            return self._register_heavy(command, connection, is_compressed)
        return self._admit(command, _registration(command), connection)

    async def _register_heavy(
        self, command: RemotingCommand, connection: Connection, is_compressed: bool
    ) -> RemotingCommand:
        size_bytes = len(command.body)
        if is_compressed:
            size_bytes = min(MAX_REGISTRATION_BYTES, size_bytes * MAX_COMPRESSION)
        registration = await HEAVY_WORK.run(size_bytes, partial(_registration, command))
        answer = self._admit(command, registration, connection)
        return answer if isinstance(answer, RemotingCommand) else await answer

    def _admit(
        self, command: RemotingCommand, registration: BrokerRegistration, connection: Connection
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        if self._current().compare_epochs(registration, self._clock.monotonic_s()):
            # A later master was elected, so whoever has the id is none any more, however alive it is.
            self._let_go(registration.broker_name, registration.broker_id, asked_by=connection)
        doubted = self._find_doubtful(registration, connection)
        if doubted is None:
            return self._register(command, registration, connection)
        return self._register_unless_alive(command, registration, connection, doubted)

    def unregister_broker(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        name, broker_id = text(command.ext, "brokerName"), integer(command.ext, "brokerId")
        claim = Claim(name, broker_id, command.ext.get("brokerAddr", ""), connection.peer.host, connection)
        if self._current().is_own(name) or not self._holders.may_unregister(claim):
            raise NameRefused(
                "NOT_ITS_REGISTRATION",
                f"The registration of broker {name[:200]!r} with id {broker_id} is not that of {connection.peer.host}.",
            )
        self._let_go(name, broker_id, asked_by=connection)
        return command.response()

    def _register(
        self, command: RemotingCommand, registration: BrokerRegistration, connection: Connection
    ) -> RemotingCommand:
        name, broker_id, now_s = registration.broker_name, registration.broker_id, self._clock.monotonic_s()
        is_told_whole = command.ext.get(WHOLE_FIELD)
        before = self._registry.members(name)
        if not self._registry.register(registration, now_s, whole=is_told_whole == "true"):
            raise ConsumeRefused("TOO_MANY_REQUESTS", "The nameserver knows as many brokers as it can.")
        for given_up in before.keys() - self._registry.members(name).keys():
            self._holders.release(name, given_up)
        self._holders.hold(_claim(registration, connection), now_s)
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_close.append(self._note_closed)
        answer: dict[str, str] = {}
        master = self._registry.master_address(name)
        if master is not None and broker_id != MASTER_ID:
            answer = {"masterAddr": master, "haServerAddr": self._registry.ha_address(name)}
        # Only ours say whether they told all, and understand the wish.
        if is_told_whole is not None and not self._registry.is_whole(name):
            answer[TELL_ALL_FIELD] = "true"
        orders = KeyValueTable(self._key_values.table(ORDER_NAMESPACE))
        return command.response(ext=answer, body=encode_body(orders))

    def _find_doubtful(self, registration: BrokerRegistration, connection: Connection) -> Holder[Connection] | None:
        """Whom the registration would replace who may be dead; None where it may be taken. Raises BROKER_NAME_TAKEN."""
        name, registry = registration.broker_name, self._current()
        if registry.is_own(name):
            raise self._name_taken_error(registration, registry.master_address(name) or "this process")
        ids = tuple(registry.members(name))
        claim = _claim(registration, connection)
        verdict, holder = self._holders.against(claim, ids, self._clock.monotonic_s())
        if verdict is ClaimVerdict.TAKEN and holder is not None:
            raise self._name_taken_error(registration, holder.claim.address)
        return holder

    async def _register_unless_alive(
        self,
        command: RemotingCommand,
        registration: BrokerRegistration,
        connection: Connection,
        doubted: Holder[Connection] | None,
    ) -> RemotingCommand:
        for _ in range(MAX_REPLICAS):
            if doubted is None:
                return self._register(command, registration, connection)
            held = doubted.claim
            if await self._lives(held.connection):
                doubted.heard_s = self._clock.monotonic_s()
                break
            if self._holders.of(held.name, held.broker_id) is doubted:
                self._let_go(held.name, held.broker_id, asked_by=connection)
            doubted = self._find_doubtful(registration, connection)
        raise self._name_taken_error(registration, "" if doubted is None else doubted.claim.address)

    async def _lives(self, connection: Connection) -> bool:
        """Whether anything answers there. All who want to know at a time share one question."""
        question = self._questions.get(connection)
        if question is None:
            question = connection.ask(RemotingCommand(RequestCode.PROBE_BROKER), PROBE_S)
            self._questions[connection] = question
            question.add_done_callback(lambda _: self._questions.pop(connection, None))
        try:
            # Whoever asked first may go away; the others want the answer still.
            await asyncio.shield(question)
        except (TimedOut, Unreachable):
            return False
        return True

    def _name_taken_error(self, registration: BrokerRegistration, holder: str) -> NameRefused:
        name, broker_id, now_s = registration.broker_name[:200], registration.broker_id, self._clock.monotonic_s()
        refused = NameRefused(
            "BROKER_NAME_TAKEN",
            f"Broker {name!r} with id {broker_id} is registered already and lives at {holder}; "
            f"the one at {registration.address[:200]} is not let in.",
        )
        if now_s >= self._warn_again_s.get(registration.broker_name, -math.inf):
            # A name that is taken is one that is known, so there are MAX_BROKERS of them at most.
            self._warn_again_s[registration.broker_name] = now_s + WARNING_INTERVAL_S
            while len(self._warn_again_s) > MAX_BROKERS:
                del self._warn_again_s[next(iter(self._warn_again_s))]
            _log.warning("%s", refused)
        return refused

    def _let_go(self, name: str, broker_id: int, *, asked_by: Connection | None = None) -> None:
        """Forget a broker. Where it did not ask for that itself its connection ends: if it lives, it comes back."""
        holder = self._holders.of(name, broker_id)
        self._holders.release(name, broker_id)
        self._registry.unregister(name, broker_id)
        if holder is not None and holder.claim.connection is not asked_by:
            # Later, because this may be under way to answer a request of that connection.
            asyncio.get_running_loop().call_soon(holder.claim.connection.abort)

    def _note_closed(self, connection: Connection) -> None:
        self._watched.discard(connection)
        now_s = self._clock.monotonic_s()
        for name, broker_id in self._holders.close(connection, now_s):
            if broker_id == MASTER_ID and self._registry.epoch(name, broker_id):
                # Another replica takes the route over: meanwhile clients try again, where none would be an error.
                self._registry.shorten_lease(name, broker_id, now_s + FAILOVER_S)
            else:
                self._registry.unregister(name, broker_id)


def _registration(command: RemotingCommand, *, reads_topics: bool = True) -> BrokerRegistration:
    ext = command.ext
    expected = optional_integer(ext, "bodyCrc32", 0)
    if expected and zlib.crc32(command.body) & _CRC_MASK != expected & _CRC_MASK:
        raise MessageRefused("MESSAGE_MALFORMED", "The registration's body fails its checksum.")
    broker_id = integer(ext, "brokerId")
    if broker_id < MASTER_ID:
        # The lowest id says which topics there are: one below the master's would take them from it.
        raise MessageRefused(
            "MESSAGE_MALFORMED", f"A broker's id is {broker_id}.", remedy="Use 0 for a master, others for replicas."
        )
    is_compressed = ext.get("compressed") == "true"
    if reads_topics:
        table = decode_registration(command.body, is_compressed=is_compressed).topic_config_serialize_wrapper
    else:
        table = TopicConfigTable(data_version=decode_version(command.body, is_compressed=is_compressed))
    return BrokerRegistration(
        cluster=text(ext, "clusterName"),
        broker_name=text(ext, "brokerName"),
        address=text(ext, "brokerAddr"),
        topics=tuple(topics_of(table)),
        broker_id=broker_id,
        data_version=data_version_of(table.data_version),
        mappings=table.topic_queue_mapping_info_map,
        ha_address=ext.get("haServerAddr", ""),
        tells_topics=reads_topics,
    )


def _claim(registration: BrokerRegistration, connection: Connection) -> Claim[Connection]:
    return Claim(
        registration.broker_name, registration.broker_id, registration.address, connection.peer.host, connection
    )
