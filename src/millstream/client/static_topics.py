"""Creates static topics and moves their queues between brokers; each step can be repeated after a failure.

A move has four steps, each of which may be repeated: the new leaders are told of their queues without saying where
these begin, so that they store nothing yet; the old leaders are told that they lead no more, and answer when all that
they accepted is stored; where each old queue ended is asked; the new leaders are told where theirs begin, and store
from then on. In the end all brokers are told everything, so that each of them could tell it again. What is found half
done (a queue whose leader does not know where it begins) is finished before anything new is begun.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from millstream.client.operations import ClientOperations
from millstream.client.requests import ClientOperation
from millstream.model.errors import NameRefused
from millstream.model.group import GroupConfig, is_tool_group
from millstream.model.logic_queue import LogicQueue, MappingItem, TopicMapping, merged_queues, moves, spread
from millstream.model.topic import TopicConfig
from millstream.protocol.remoting.administration.settings import decode_group_table, encode_group
from millstream.protocol.remoting.administration.static_topics import (
    StaticTopicState,
    decode_topic_state,
    encode_mapping,
    static_topic_fields,
)
from millstream.protocol.remoting.bodies import ClusterInfo, decode_body
from millstream.protocol.remoting.codes import RequestCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.fields import integer

__all__ = ["StaticTopicOperations", "StaticTopicView"]

_MASTER_ID = 0


@dataclass(slots=True)
class StaticTopicView:
    """A static topic as its brokers know it together. `states` and `addresses` are by broker."""

    name: str
    addresses: dict[str, str]
    states: dict[str, StaticTopicState]
    queues: dict[int, LogicQueue] = field(default_factory=dict)
    epoch: int = 0
    total_queues: int = 0

    @property
    def leaders(self) -> dict[int, str]:
        """The broker of each queue."""
        return {number: queue.leader.broker_name for number, queue in self.queues.items()}

    def own_queues(self, broker_name: str) -> int:
        """How many queues of its own a broker has for the topic."""
        used = [
            item.queue_id + 1
            for queue in self.queues.values()
            for item in queue.items
            if item.broker_name == broker_name
        ]
        state = self.states.get(broker_name)
        return max([*used, 0 if state is None else state.config.write_queues])


class StaticTopicOperations:
    """Operations on static topics, for one administrator. `now_ms` is the time for epochs."""

    def __init__(self, conversations: ClientOperations, *, now_ms: Callable[[], int] | None = None) -> None:
        self._conversations = conversations
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)

    def view(self, name: str) -> ClientOperation[StaticTopicView]:
        """What the brokers know of the topic. Raises TOPIC_NOT_FOUND, NOT_A_STATIC_TOPIC."""
        view = yield from self._look(name)
        if not view.states:
            raise NameRefused("TOPIC_NOT_FOUND", f"The topic {name[:200]!r} does not exist.")
        if not view.total_queues:
            raise NameRefused("NOT_A_STATIC_TOPIC", f"The queues of the topic {name!r} are those of its brokers.")
        missing = sorted(set(range(view.total_queues)) - view.queues.keys())
        if missing:
            words = f"Queue {missing[0]} of {name!r} is known to no broker that answers."
            raise NameRefused("STATIC_TOPIC_STATE", words, remedy="Start all brokers of the topic first.")
        return view

    def create(
        self, config: TopicConfig, total_queues: int, brokers: Sequence[str] | None = None
    ) -> ClientOperation[StaticTopicView]:
        """Create a static topic over these brokers (all, by default), or give one that is there more queues.

        Repeating it finishes what was begun. Raises TOPIC_EXISTS (with other settings), BROKER_NOT_FOUND.
        """
        view = yield from self._look(config.name)
        targets = self._brokers(view, brokers)
        for state in view.states.values():
            if state.mapping is None or state.config.message_type is not config.message_type:
                words = f"The topic {config.name!r} exists with other settings."
                raise NameRefused("TOPIC_EXISTS", words)
        if total_queues < view.total_queues:
            words = f"The topic {config.name!r} has {view.total_queues} queues and cannot have fewer."
            raise NameRefused("TOPIC_EXISTS", words)
        counts: dict[str, int] = {}
        for leader in view.leaders.values():
            counts[leader] = counts.get(leader, 0) + 1
        new = [number for number in range(total_queues) if number not in view.queues]
        for number, broker in spread(new, targets, counts).items():
            item = MappingItem(0, broker, view.own_queues(broker), 0)
            view.queues[number] = LogicQueue(number, (item,))
        view.total_queues = total_queues
        self._next_epoch(view)
        yield from self._settle(view, config)
        return view

    def remap(self, name: str, brokers: Sequence[str]) -> ClientOperation[dict[int, str]]:
        """Spread the topic's queues evenly over these brokers; the queues that moved, and where they are now.

        What an earlier call left half done is finished first, and is among them. Raises BROKER_NOT_FOUND, and what
        `view` raises.
        """
        view = yield from self.view(name)
        targets = self._brokers(view, brokers)
        undecided = {number: queue for number, queue in view.queues.items() if not queue.leader.is_decided}
        yield from self._move(view, undecided)
        planned = moves(view.leaders, targets)
        moving = {}
        for number, broker in planned.items():
            moving[number] = view.queues[number] = view.queues[number].move_to(broker, view.own_queues(broker))
        yield from self._move(view, moving)
        config = next(state.config for state in view.states.values())
        if undecided or planned or self._is_uneven(view):
            yield from self._settle(view, config)
        return {number: view.queues[number].leader.broker_name for number in sorted({*undecided, *planned})}

    # inside

    def _look(self, name: str) -> ClientOperation[StaticTopicView]:
        self._conversations.forget_route(name)
        addresses = yield from self._masters()
        states = {}
        for broker, address in addresses.items():
            command = RemotingCommand(RequestCode.GET_TOPIC_CONFIG, {"topic": name, "lo": "true"})
            try:
                answer = yield from self._conversations.ask(address, command)
            except NameRefused as error:
                if error.name != "TOPIC_NOT_FOUND":
                    raise
                continue
            states[broker] = decode_topic_state(answer.body)
        mappings = [state.mapping for state in states.values() if state.mapping is not None]
        return StaticTopicView(
            name,
            addresses,
            states,
            merged_queues(mappings),
            max((mapping.epoch for mapping in mappings), default=0),
            max((mapping.total_queues for mapping in mappings), default=0),
        )

    def _masters(self) -> ClientOperation[dict[str, str]]:
        answer = yield from self._conversations.ask_nameserver(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
        table = decode_body(ClusterInfo, answer.body).broker_addr_table
        return {
            name: broker.broker_addrs[_MASTER_ID]
            for name, broker in sorted(table.items())
            if _MASTER_ID in broker.broker_addrs
        }

    def _brokers(self, view: StaticTopicView, names: Sequence[str] | None) -> list[str]:
        wanted = list(dict.fromkeys(names)) if names else [*view.addresses]
        for name in wanted:
            if name not in view.addresses:
                words = f"There is no broker {name[:80]!r}. There are: {', '.join(view.addresses)}."
                raise NameRefused("BROKER_NOT_FOUND", words, remedy="")
        return wanted

    def _next_epoch(self, view: StaticTopicView) -> None:
        view.epoch = max(view.epoch + 1, self._now_ms())

    def _move(self, view: StaticTopicView, moving: Mapping[int, LogicQueue]) -> ClientOperation[None]:
        """The four steps, for queues whose leader is not decided."""
        if not moving:
            return
        self._next_epoch(view)
        config = next(state.config for state in view.states.values())
        gaining = sorted({queue.leader.broker_name for queue in moving.values()})
        losing = sorted({queue.items[-2].broker_name for queue in moving.values()})
        for broker in gaining:
            yield from self._give_groups(view, losing, broker)
        for broker in (*gaining, *losing):
            yield from self._tell(view, config, broker, moving)
        for number, queue in moving.items():
            end_offset = yield from self._end(view, queue.items[-2])
            view.queues[number] = queue.decide(end_offset, self._now_ms())
        for broker in gaining:
            yield from self._tell(view, config, broker, {number: view.queues[number] for number in moving})

    def _give_groups(self, view: StaticTopicView, losing: Sequence[str], broker: str) -> ClientOperation[None]:
        """Groups that the old brokers know: one made on the fly need not keep order, or have the same attempts."""
        address = self._address(view, broker)
        known = {group.name for group in (yield from self._groups(address))}
        for other in losing:
            for group in (yield from self._groups(self._address(view, other))):
                if group.name not in known and not is_tool_group(group.name):
                    known.add(group.name)
                    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP
                    yield from self._conversations.ask(address, RemotingCommand(code, {}, encode_group(group)))

    def _groups(self, address: str) -> ClientOperation[list[GroupConfig]]:
        command = RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTION_GROUP_CONFIG)
        return decode_group_table((yield from self._conversations.ask(address, command)).body)

    def _end(self, view: StaticTopicView, item: MappingItem) -> ClientOperation[int]:
        address = self._address(view, item.broker_name)
        ext = {"topic": view.name, "queueId": str(item.queue_id), "lo": "false"}
        answer = yield from self._conversations.ask(address, RemotingCommand(RequestCode.GET_MAX_OFFSET, ext))
        return integer(answer.ext, "offset")

    def _settle(self, view: StaticTopicView, config: TopicConfig) -> ClientOperation[None]:
        """Tell all brokers everything; those with a queue first, so that none is led to one that does not know it."""
        leading = set(view.leaders.values())
        for broker in sorted(view.addresses, key=lambda name: (name not in leading, name)):
            yield from self._tell(view, config, broker, view.queues)

    def _tell(
        self, view: StaticTopicView, config: TopicConfig, broker: str, queues: Mapping[int, LogicQueue]
    ) -> ClientOperation[None]:
        own = view.own_queues(broker)
        resized = replace(config, read_queues=own, write_queues=own)
        mapping = TopicMapping(view.name, broker, view.total_queues, view.epoch, dict(queues))
        command = RemotingCommand(
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, static_topic_fields(resized), encode_mapping(mapping)
        )
        yield from self._conversations.ask(self._address(view, broker), command)

    def _address(self, view: StaticTopicView, broker: str) -> str:
        if broker not in view.addresses:
            words = f"The broker {broker!r}, which stores queues of {view.name!r}, is not registered."
            raise NameRefused("BROKER_NOT_FOUND", words, remedy="Start it; its queues cannot be moved without it.")
        return view.addresses[broker]

    def _is_uneven(self, view: StaticTopicView) -> bool:
        """Whether some broker knows less than another."""
        mappings = {name: state.mapping for name, state in view.states.items()}
        return any(
            (mapping := mappings.get(name)) is None or mapping.epoch != view.epoch or mapping.queues != view.queues
            for name in view.addresses
        )
