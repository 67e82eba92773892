"""Pops of new messages that lie one behind the other: found as records, and taken once their caller can hand them over.

It takes the ordinary ones. Whatever else a pop may have to do is left to `Popper.pop`: to wait, to deliver again, to
keep order, to filter, to open a queue, to bury what has no attempt left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.broker.pop.pop_scan import MAX_POP_MESSAGES
from millstream.broker.pop.popper import Popper, keeps_order
from millstream.broker.queues.ledger import Ledger
from millstream.model.light_queue import LIGHT_PREFIX
from millstream.model.lite import LITE_PREFIX
from millstream.model.operations import PopRequest
from millstream.model.topic import MessageType, Permission, TopicConfig
from millstream.store.record_run import Place

__all__ = ["MAX_RUNS_BYTES", "DeliveredRun", "RunPopper"]

MAX_RUNS_BYTES: Final = 64 * 1024
"""Bytes of the records of one pop at most."""

_MAX_BYTES: Final = MAX_RUNS_BYTES
_MAX_MESSAGES: Final = MAX_POP_MESSAGES
_TYPES: Final = frozenset((MessageType.NORMAL, MessageType.MIXED))
"""Of topics whose queues take turns and whose messages are mostly ordinary ones."""

_READ: Final = int(Permission.READ)


class DeliveredRun:
    """Records of one queue that follow one another, each checked; `data` holds them as they are stored.

    `pop_time_ms` is what the handles of their deliveries say.
    """

    __slots__ = ("data", "ledger", "now_ms", "places", "pop_time_ms", "queue_id", "queue_offset")

    def __init__(
        self, ledger: Ledger, queue_id: int, queue_offset: int, now_ms: int, data: bytes, places: list[Place]
    ) -> None:
        self.ledger = ledger
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.pop_time_ms = ledger.pop_time_ms(now_ms)
        self.now_ms = now_ms
        self.data = data
        self.places = places


class RunPopper:
    """Finds and takes runs of records; both in one turn of the event loop."""

    __slots__ = ("popper",)

    def __init__(self, popper: Popper) -> None:
        self.popper = popper

    def find(self, request: PopRequest) -> list[DeliveredRun]:
        """What a pop would take now; [] where it has to be asked. Nothing is taken."""
        popper = self.popper
        topic, group = popper.topics.find(request.topic), popper.groups.find(request.group)
        if topic is None or group is None or not group.enabled or not _has_plain_queues(topic):
            return []
        if request.queue_id is not None or keeps_order(request, group) or not request.filter.takes_all:
            return []
        if popper.list_retry_queues(request, group):
            return []
        store, now_ms = popper.reader.store, popper.clock.now_ms()
        left, left_bytes = min(max(1, request.max_messages), _MAX_MESSAGES), _MAX_BYTES
        runs: list[DeliveredRun] = []
        queues, ledger_of = popper.order_queues(request, topic), popper.offsets.ledger
        group_name, topic_name = request.group, topic.name
        ledgers = [ledger_of(group_name, topic_name, queue_id) for queue_id in queues]
        if None in ledgers:
            # The group begins to read a queue now, and may have to do so at its end.
            return []
        for number, queue_id in enumerate(queues):
            found = ledgers[number]
            if type(found) is not Ledger:
                return []
            ledger: Ledger = found
            if ledger.peek_due(now_ms) is not None:
                return []
            first = ledger.cursor
            if first < store.min_offset(topic_name, queue_id):
                return []
            count = min(left, ledger.room)
            if count <= 0 or first >= store.max_offset(topic_name, queue_id):
                continue
            run = store.read_run(topic_name, queue_id, first, count, left_bytes)
            if run is None:
                return []
            data, places = run
            runs.append(DeliveredRun(ledger, queue_id, first, now_ms, data, places))
            left -= len(places)
            left_bytes -= len(data)
            if left <= 0:
                break
        return runs

    def take(self, request: PopRequest, runs: Sequence[DeliveredRun]) -> None:
        """Deliver all that `find` gave for the request."""
        popper, count = self.popper, 0
        for run in runs:
            run.ledger.deliver_run(run.queue_offset, len(run.places), run.now_ms, request.invisible_ms)
            count += len(run.places)
        popper.end_turn(request)
        if count >= min(max(1, request.max_messages), _MAX_MESSAGES):
            popper.pass_on(request)
        popper.arm(request)


def _has_plain_queues(topic: TopicConfig) -> bool:
    return (
        topic.message_type in _TYPES
        and bool(int(topic.permission) & _READ)
        and topic.read_queues > 0
        and not topic.holds_batches
        and not topic.is_compacted
        and not topic.name.startswith((LIGHT_PREFIX, LITE_PREFIX))
    )
