"""Pops from logic queues: each physical queue keeps its ledger at its own broker, so a move moves no ledger.

The leader of a logic queue delivers what is not consumed of the older queues as well: of its own from their ledgers, of
those of its peers by asking them. Receipt handles name the broker whose ledger has the delivery; queue and offset in
them are the logic ones. In a FIFO group a queue is opened when the one before it is consumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from millstream.broker.pop.pop_scan import MAX_POP_MESSAGES
from millstream.broker.pop.popper import Popper, keeps_order
from millstream.broker.pop.preview import Preview
from millstream.broker.queues.puller import MAX_WAIT_MS
from millstream.broker.queues.topics import StaticTopics
from millstream.broker.static_topics.segments import PeerSegment, Segments
from millstream.model.errors import ConsumeRefused, NameRefused
from millstream.model.handles import ReceiptHandle
from millstream.model.logic_queue import LogicQueue, MappingItem
from millstream.model.message import StoredMessage
from millstream.model.operations import PoppedMessage, PopRequest
from millstream.protocol.record import decode_record, iterate_records
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.messages.popped import pop_fields, popped_messages
from millstream.protocol.remoting.refusals import error_of
from millstream.store.message_store import MessageStore

__all__ = ["PEER_LOOK_S", "LogicPops"]

PEER_LOOK_S: Final = 1.0
"""Seconds after which a waiting pop asks again for what its peers still hold."""

_Place = tuple[str, str, str, int]
"""Group, topic, broker and its own queue."""


@dataclass(slots=True)
class _Plan:
    """What a pop looks at: queues of this broker, and those of its peers that are not consumed yet."""

    own: list[int] = field(default_factory=list)
    peers: list[MappingItem] = field(default_factory=list)


@dataclass(slots=True)
class LogicPops:
    """Answers pops of static topics."""

    topics: StaticTopics
    segments: Segments
    popper: Popper
    store: MessageStore
    _consumed: set[_Place] = field(default_factory=set)

    async def pop(self, request: PopRequest) -> list[PoppedMessage]:
        """As `Popper.pop`; `queue_id` None takes from all logic queues that this broker leads.

        A delivery of a peer whose answer is lost on the way, or whose call is cancelled, comes again after its time.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(request.wait_ms, MAX_WAIT_MS) / 1000
        while True:
            plan = self._plan(request)
            taken, has_changed = await self._pop_peers(request, plan)
            if not taken and not has_changed:
                taken = await self._pop_own(request, plan, max(deadline_s - loop.time(), 0.0))
            if taken or (loop.time() >= deadline_s and not has_changed):
                return taken

    async def pop_segment(self, request: PopRequest) -> tuple[list[PoppedMessage], bool]:
        """What a peer asks for: messages of one of this broker's own queues; and whether the group has consumed it."""
        assert request.queue_id is not None
        taken = await self.popper.pop(replace(request, wait_ms=0))
        committed = self.segments.offsets.committed_offset(request.group, request.topic, request.queue_id)
        is_consumed = not taken and (committed or 0) >= self.store.max_offset(request.topic, request.queue_id)
        return [self._logic(one) for one in taken], is_consumed

    async def peek(self, group: str, topic: str, queue_id: int | None, max_messages: int) -> list[StoredMessage]:
        """What a pop would deliver next, of this broker and of its peers; nothing is taken."""
        limit = min(max(1, max_messages), MAX_POP_MESSAGES)
        plan = self._plan(PopRequest(group, topic, 1, queue_id))
        found: list[StoredMessage] = []
        for item in plan.peers:
            if len(found) < limit:
                found += await self._peek_peer(group, topic, item, limit - len(found))
        own = self.peek_own(group, topic, plan.own, limit - len(found)) if len(found) < limit else []
        return found + [self._show(message) for message in own]

    def peek_own(self, group: str, topic: str, queue_ids: Iterable[int], limit: int) -> list[StoredMessage]:
        """The same of this broker's own queues, with their own numbers."""
        return Preview(self.popper).of_queues(group, topic, queue_ids, limit)

    async def _peek_peer(self, group: str, topic: str, item: MappingItem, limit: int) -> list[StoredMessage]:
        segment = PeerSegment(topic, item.queue_id, item.broker_name, self.segments.peers)
        asked = {"consumerGroup": group, "maxMsgNums": str(limit)}
        answer = await segment.ask(RequestCode.PEEK_MESSAGE, asked)
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return []
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(answer, item.broker_name)
        mapping = self.topics.find(topic)
        queues = [] if mapping is None else mapping.queues.values()
        number = next((queue.number for queue in queues if item in queue.readable), item.queue_id)
        messages = (decode_record(record) for record in iterate_records(answer.body))
        return [replace(one, queue_id=number, queue_offset=item.logic(one.queue_offset)) for one in messages]

    def physical_handle(self, topic: str, handle: ReceiptHandle) -> ReceiptHandle:
        """The handle as the ledger knows it. Raises INVALID_RECEIPT_HANDLE."""
        mapping = self.topics.find(topic)
        queue = None if mapping is None else mapping.queues.get(handle.queue_id)
        if mapping is not None and queue is not None and handle.broker_name == mapping.broker_name:
            item = queue.readable[queue.position_of(handle.queue_offset)]
            if item.broker_name == mapping.broker_name:
                return replace(handle, queue_id=item.queue_id, queue_offset=item.physical(handle.queue_offset))
        raise ConsumeRefused(
            "INVALID_RECEIPT_HANDLE",
            f"Offset {handle.queue_offset} of queue {handle.queue_id} of {topic!r} was not delivered by "
            f"{self.segments.broker_name!r}.",
        )

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Look again what has been consumed of a topic, by a group, or (both named) of a topic by a group."""
        self._consumed = {
            place
            for place in self._consumed
            if (topic is not None and place[1] != topic) or (group is not None and place[0] != group)
        }

    def _plan(self, request: PopRequest) -> _Plan:
        mapping = self.topics.find(request.topic)
        if mapping is None:
            raise NameRefused("TOPIC_NOT_FOUND", f"The topic {request.topic[:200]!r} does not exist.")
        numbers = [*mapping.led_queues] if request.queue_id is None else [request.queue_id]
        in_order = keeps_order(request, self.popper.groups.ensure_enabled(request.group))
        plan = _Plan()
        for number in numbers:
            self._plan_queue(request, self.topics.led_queue(request.topic, number), in_order, plan)
        return plan

    def _plan_queue(self, request: PopRequest, queue: LogicQueue, in_order: bool, plan: _Plan) -> None:
        for item in queue.readable[:-1]:
            if self._is_consumed(request, item):
                continue
            if item.broker_name == self.segments.broker_name:
                plan.own.append(item.queue_id)
            else:
                plan.peers.append(item)
            if in_order:
                return
        plan.own.append(queue.leader.queue_id)

    def _is_consumed(self, request: PopRequest, item: MappingItem) -> bool:
        place = (request.group, request.topic, item.broker_name, item.queue_id)
        if place in self._consumed:
            return True
        if item.broker_name != self.segments.broker_name:
            return False
        committed = self.segments.offsets.committed_offset(request.group, request.topic, item.queue_id)
        return (committed or 0) >= self.store.max_offset(request.topic, item.queue_id)

    async def _pop_peers(self, request: PopRequest, plan: _Plan) -> tuple[list[PoppedMessage], bool]:
        """What the peers deliver, and whether one of their queues turned out to be consumed."""
        taken: list[PoppedMessage] = []
        has_changed = False
        limit = max(1, min(request.max_messages, MAX_POP_MESSAGES))
        for item in plan.peers:
            if len(taken) >= limit:
                break
            asked = replace(request, queue_id=item.queue_id, max_messages=limit - len(taken))
            found, is_consumed = await self._pop_peer(asked, item)
            taken += found
            if is_consumed:
                has_changed = True
                self._consumed.add((request.group, request.topic, item.broker_name, item.queue_id))
        return taken, has_changed

    async def _pop_peer(self, request: PopRequest, item: MappingItem) -> tuple[list[PoppedMessage], bool]:
        segment = PeerSegment(request.topic, item.queue_id, item.broker_name, self.segments.peers)
        answer = await segment.ask(RequestCode.SEGMENT_POP, pop_fields(request))
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(answer, item.broker_name)
        return popped_messages(answer)

    async def _pop_own(self, request: PopRequest, plan: _Plan, left_s: float) -> list[PoppedMessage]:
        if not plan.own:
            await asyncio.sleep(min(left_s, PEER_LOOK_S))
            return []
        wait_s = min(left_s, PEER_LOOK_S) if plan.peers else left_s
        asked = replace(request, queue_id=None, queues=tuple(plan.own), wait_ms=int(wait_s * 1000))
        return [self._logic(one) for one in await self.popper.pop(asked)]

    def _logic(self, one: PoppedMessage) -> PoppedMessage:
        """A delivery of this broker's own queue with the numbers that clients know."""
        message = self._show(one.message)
        handle = replace(one.handle, queue_id=message.queue_id, queue_offset=message.queue_offset)
        return replace(one, message=message, handle=handle)

    def _show(self, message: StoredMessage) -> StoredMessage:
        mapping = self.topics.find(message.topic)
        queue = None if mapping is None else mapping.find(message.queue_id)
        if mapping is None or queue is None:
            return message
        item = queue.readable[queue.own(mapping.broker_name, message.queue_id) or 0]
        return replace(message, queue_id=queue.number, queue_offset=item.logic(message.queue_offset))
