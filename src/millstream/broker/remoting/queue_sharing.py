"""How the members of a group share the queues of a topic: by assignment at the broker, or by locks for ordered ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from millstream.broker.broker import Broker
from millstream.broker.queues.consumer_groups import RequestKind, RequestMode
from millstream.broker.queues.queue_locks import LockedQueue
from millstream.broker.remoting.clients import MAX_CLIENT_ID_CHARACTERS, ConsumerRegistry
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.group import check_group_name
from millstream.model.topic import RETRY_PREFIX, Permission
from millstream.protocol.remoting.administration.assignment import (
    AssignedQueue,
    AssignmentBody,
    AssignmentQuery,
    RequestModeBody,
)
from millstream.protocol.remoting.administration.static_topics import LOGIC_BROKER_NAME
from millstream.protocol.remoting.bodies import TopicRouteData, decode_body, encode_body
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.offsets import LockBody, LockedBody, QueueName
from millstream.transport.remoting_connection import Connection

__all__ = [
    "ALL_QUEUES_OF_BROKER",
    "BROADCAST",
    "MAX_LOCKED_QUEUES",
    "STRATEGIES",
    "AssignmentHandlers",
    "LockHandlers",
    "QueuePlace",
    "Strategy",
    "allocate_pops",
    "readable_queues",
]


ALL_QUEUES_OF_BROKER: Final = -1
"""Stands for a queue where a member pops from whichever queue of the broker has something."""


class QueuePlace(NamedTuple):
    """One queue of a topic: the broker's name and the number there."""

    broker_name: str
    queue_id: int


Strategy = Callable[[int, int, Sequence[QueuePlace]], list[QueuePlace]]
"""The queues of the member of that number among so many."""


def _in_stretches(member: int, members: int, queues: Sequence[QueuePlace]) -> list[QueuePlace]:
    """Neighbouring queues; the first members get one more where they do not divide evenly."""
    each, more = divmod(len(queues), members)
    start = member * each + min(member, more)
    return list(queues[start : start + each + (member < more)])


def _in_turn(member: int, members: int, queues: Sequence[QueuePlace]) -> list[QueuePlace]:
    """Every so many-th queue."""
    return list(queues[member::members])


STRATEGIES: Final[dict[str, Strategy]] = {"AVG": _in_stretches, "AVG_BY_CIRCLE": _in_turn}
"""The strategies by the names that clients send."""


def allocate_pops(
    strategy: Strategy, member: int, members: int, queues: Sequence[QueuePlace], share_count: int
) -> list[QueuePlace]:
    """What a member pops from: all queues of each broker, or its own and those of `share_count` members behind it.

    A `share_count` of 0 or less, or one that covers everybody, means all. Where there are more members than queues
    several have the same one.
    """
    if share_count <= 0 or share_count >= members - 1:
        names = dict.fromkeys(queue.broker_name for queue in queues)
        return [QueuePlace(name, ALL_QUEUES_OF_BROKER) for name in names]
    if not queues:
        return []
    if members > len(queues):
        return [queues[member % len(queues)]]
    found: dict[QueuePlace, None] = {}
    for step in range(share_count + 1):
        found.update(dict.fromkeys(strategy((member + step) % members, members, queues)))
    return list(found)


BROADCAST: Final = "BROADCASTING"
"""The model of groups whose members each get everything."""


class AssignmentHandlers:
    """Codes 400 and 401."""

    def __init__(self, broker: Broker, consumers: ConsumerRegistry) -> None:
        self._broker = broker
        self._consumers = consumers

    async def query(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Answer the member's queues. Nothing for a topic, member or strategy that is not known: it keeps its own."""
        asked = decode_body(AssignmentQuery, command.body)
        route = await self._broker.queues.route(asked.topic)
        places = None if route is None else self._allocate(asked, route)
        if places is None:
            return command.response(body=encode_body(AssignmentBody()))
        kind = self._mode(asked).kind.value
        assigned = [AssignedQueue(QueueName(asked.topic, place.broker_name, place.queue_id), kind) for place in places]
        return command.response(body=encode_body(AssignmentBody(assigned)))

    def set_mode(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Set how a group gets a topic's messages; its members learn it when they ask for their queues again."""
        body = decode_body(RequestModeBody, command.body)
        if body.topic.startswith(RETRY_PREFIX):
            raise NameRefused(
                "ILLEGAL_TOPIC",
                f"{body.topic[:200]!r} is a retry topic; how it is read follows from the topic's own mode.",
                remedy="Name the topic itself.",
            )
        try:
            kind = RequestKind(body.mode)
        except ValueError:
            words = f"{body.mode[:40]!r} is no mode of getting messages."
            raise NameRefused("ILLEGAL_GROUP_SETTING", words, remedy="Use the mode PULL or POP.") from None
        check_group_name(body.consumer_group)
        topic = self._broker.topics.get(body.topic)
        mode = RequestMode(kind, body.pop_share_queue_num)
        self._broker.groups.set_request_mode(topic.name, body.consumer_group, mode)
        return command.response()

    def _mode(self, asked: AssignmentQuery) -> RequestMode:
        return self._broker.groups.request_mode(asked.topic, asked.consumer_group)

    def _allocate(self, asked: AssignmentQuery, route: TopicRouteData) -> Sequence[QueuePlace] | None:
        queues = sorted(readable_queues(route))
        if asked.message_model == BROADCAST:
            return queues
        self._consumers.expire(self._broker.clock.monotonic_s())
        members = self._consumers.clients(asked.consumer_group)
        strategy = STRATEGIES.get(asked.strategy_name)
        if asked.client_id not in members or strategy is None:
            return None
        number, mode = members.index(asked.client_id), self._mode(asked)
        if mode.kind is RequestKind.PULL:
            return strategy(number, len(members), queues)
        if route.topic_queue_mapping_by_broker:
            # Who pops asks a broker for what it leads; which queues these are is not the client's business.
            return sorted(QueuePlace(data.broker_name, ALL_QUEUES_OF_BROKER) for data in route.queue_datas)
        return allocate_pops(strategy, number, len(members), queues, mode.share_count)


def readable_queues(route: TopicRouteData) -> Iterator[QueuePlace]:
    """The queues as clients name them; those of a static topic lie on no broker in particular."""
    mappings = route.topic_queue_mapping_by_broker or {}
    for number in range(max((each.total_queues for each in mappings.values()), default=0)):
        yield QueuePlace(LOGIC_BROKER_NAME, number)
    for data in route.queue_datas if not mappings else ():
        if data.perm & Permission.READ:
            for number in range(data.read_queue_nums):
                yield QueuePlace(data.broker_name, number)


MAX_LOCKED_QUEUES: Final = 4096
"""Queues of one request to lock or unlock at most."""


class LockHandlers:
    """Codes 41 and 42."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def lock(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Answer which of the queues the client holds now. Queues of topics that are not here cannot be locked."""
        body = _read(command)
        self._broker.groups.ensure(body.consumer_group)
        known = [queue for queue in _queues(body) if self._broker.topics.find(queue.topic) is not None]
        locked = self._broker.groups.lock_queues(body.consumer_group, body.client_id, known)
        return command.response(
            body=encode_body(
                LockedBody([QueueName(queue.topic, queue.broker_name, queue.queue_id) for queue in locked])
            )
        )

    def note_leave(self, group: str, client_id: str, is_gone: bool) -> None:
        """A consumer has left. One that may live on trusts its locks until they expire."""
        if is_gone:
            self._broker.groups.release_queues(group, client_id)

    def unlock(self, command: RemotingCommand, connection: Connection) -> RemotingCommand:
        body = _read(command)
        self._broker.groups.unlock_queues(body.consumer_group, body.client_id, _queues(body))
        return command.response()


def _read(command: RemotingCommand) -> LockBody:
    body = decode_body(LockBody, command.body)
    names = (body.client_id, *(queue.broker_name for queue in body.mq_set))
    if len(body.mq_set) > MAX_LOCKED_QUEUES or max(map(len, names)) > MAX_CLIENT_ID_CHARACTERS:
        raise ConsumeRefused(
            "TOO_MANY_REQUESTS",
            f"A request locks {MAX_LOCKED_QUEUES} queues at most, with names of {MAX_CLIENT_ID_CHARACTERS} characters.",
        )
    return body


def _queues(body: LockBody) -> list[LockedQueue]:
    return [LockedQueue(queue.topic, queue.broker_name, queue.queue_id) for queue in body.mq_set]
