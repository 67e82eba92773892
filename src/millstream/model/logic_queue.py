"""Logic queues: queue numbers that outlive brokers, mapped to physical queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from millstream.model.errors import NameRefused
from millstream.model.topic import MAX_QUEUES

__all__ = [
    "GLOBAL_SCOPE",
    "MAX_ITEMS",
    "OPEN",
    "UNDECIDED",
    "LogicQueue",
    "MappingItem",
    "TopicMapping",
    "merged_queues",
    "moves",
    "shares",
    "spread",
]


def shares(queues: int, brokers: Sequence[str], present: Mapping[str, int]) -> dict[str, int]:
    """How many of so many queues each broker stores; one more for those that have most already."""
    least, over = divmod(queues, len(brokers))
    ranked = sorted(brokers, key=lambda name: (-present.get(name, 0), name))
    return {name: least + (position < over) for position, name in enumerate(ranked)}


def spread(numbers: Iterable[int], brokers: Sequence[str], present: Mapping[str, int]) -> dict[int, str]:
    """A broker for each new queue: the one that has the fewest by then, the first by name of several."""
    counts = {name: present.get(name, 0) for name in brokers}
    found = {}
    for number in numbers:
        name = min(counts, key=lambda broker: (counts[broker], broker))
        found[number] = name
        counts[name] += 1
    return found


def moves(leaders: Mapping[int, str], brokers: Sequence[str]) -> dict[int, str]:
    """The queues that have to move so that these brokers share all of them evenly, and where to."""
    present: dict[str, int] = {}
    for name in leaders.values():
        present[name] = present.get(name, 0) + 1
    left = shares(len(leaders), brokers, present)
    moving = []
    for number, name in sorted(leaders.items()):
        if left.get(name, 0) > 0:
            left[name] -= 1
        else:
            moving.append(number)
    places = [name for name in sorted(left) for _ in range(left[name])]
    return dict(zip(moving, places, strict=True))


OPEN = -1
"""The end offset of an item whose end nobody has noted, as that of each leader."""

UNDECIDED = -1
"""The logic offset of a leader that is not written yet, because the end of the queue before it is not known."""

MAX_ITEMS = 256
"""Items of one logic queue at most: each move adds one, and every answer to a mapping request has all of them."""

GLOBAL_SCOPE = "__global__"
"""The scope of a topic that is the same topic in all clusters of a nameserver."""


@dataclass(frozen=True, slots=True)
class MappingItem:
    """A stretch of a logic queue: from `logic_offset` on it is `queue_id` of the broker, from `start_offset` on.

    `end_offset` is the physical offset behind its last message, OPEN where nobody noted it. The times are milliseconds
    since 1970, -1 where they are not known.
    """

    generation: int
    broker_name: str
    queue_id: int
    logic_offset: int
    start_offset: int = 0
    end_offset: int = OPEN
    start_ms: int = -1
    end_ms: int = -1

    @property
    def is_decided(self) -> bool:
        """Whether it is known which logic offset its first message has."""
        return self.logic_offset != UNDECIDED

    def logic(self, queue_offset: int) -> int:
        """The logic offset of a physical one."""
        return self.logic_offset + queue_offset - self.start_offset

    def physical(self, logic_offset: int) -> int:
        """The physical offset of a logic one, at least the item's first one."""
        return self.start_offset + max(logic_offset - self.logic_offset, 0)

    def is_same(self, other: MappingItem) -> bool:
        """Whether both are the same stretch, whatever was decided or noted of it meanwhile."""
        mine = (self.generation, self.broker_name, self.queue_id, self.start_offset)
        return mine == (other.generation, other.broker_name, other.queue_id, other.start_offset)


@dataclass(frozen=True, slots=True)
class LogicQueue:
    """One logic queue of a topic; `items` from the oldest to the leader, never empty."""

    number: int
    items: tuple[MappingItem, ...]

    @property
    def leader(self) -> MappingItem:
        """The item that is written, or (not decided) will be."""
        return self.items[-1]

    @property
    def readable(self) -> tuple[MappingItem, ...]:
        """The items whose offsets are known: all, or all but the leader."""
        return self.items if self.leader.is_decided else self.items[:-1]

    def leads(self, broker_name: str) -> bool:
        """Whether messages for the queue are stored by the broker now."""
        return self.leader.broker_name == broker_name and self.leader.is_decided

    def position_of(self, logic_offset: int) -> int:
        """The place in `readable` of the item that has an offset; the first one's for offsets before all of them."""
        items = self.readable
        for position in range(len(items) - 1, 0, -1):
            if items[position].logic_offset <= logic_offset:
                return position
        return 0

    def limit(self, position: int) -> int | None:
        """The physical offset before which the item of that place ends; None for the last one, which has no end yet.

        Where nobody noted the end it is where the next item begins, and the queue may end before that.
        """
        items = self.readable
        if position + 1 == len(items):
            return None
        item = items[position]
        ends = item.physical(items[position + 1].logic_offset)
        return ends if item.end_offset == OPEN else min(ends, item.end_offset)

    def own(self, broker_name: str, queue_id: int) -> int | None:
        """The place in `readable` of the broker's physical queue, or None."""
        for position, item in enumerate(self.readable):
            if item.broker_name == broker_name and item.queue_id == queue_id:
                return position
        return None

    def move_to(self, broker_name: str, queue_id: int) -> LogicQueue:
        """The queue with a new leader that is not decided yet. Raises STATIC_TOPIC_STATE where there is one already."""
        leader = self.leader
        if not leader.is_decided:
            raise _illegal(f"queue {self.number} is being moved to {leader.broker_name} already")
        if len(self.items) >= MAX_ITEMS:
            raise _illegal(f"queue {self.number} has {MAX_ITEMS} items, which is the limit")
        item = MappingItem(leader.generation + 1, broker_name, queue_id, UNDECIDED)
        return LogicQueue(self.number, (*self.items, item))

    def decide(self, end_offset: int, now_ms: int, *, margin: int = 0) -> LogicQueue:
        """The queue whose leader follows where the item before it ended, at the physical offset `end_offset`.

        `margin` leaves out so many logic offsets, for those who do not know whether the old leader still stores. Behind
        an empty item one is left out: tools of RocketMQ take two items with one logic offset for damage, and an end
        offset without a gap as well, so none is noted. Nothing changes where the leader was decided before.
        """
        if self.leader.is_decided:
            return self
        *before, last, leader = self.items
        if end_offset < last.start_offset:
            raise _illegal(f"queue {self.number} would end at {end_offset}, before it begins at {last.start_offset}")
        gap = max(margin, int(end_offset == last.start_offset))
        opened = replace(leader, logic_offset=last.logic(end_offset) + gap, start_ms=now_ms)
        return LogicQueue(self.number, (*before, last, opened))

    def check(self) -> None:
        """Refuse items that overlap, are out of order or have impossible numbers: STATIC_TOPIC_STATE."""
        if not 0 <= self.number < MAX_QUEUES or not 1 <= len(self.items) <= MAX_ITEMS:
            raise _illegal(f"queue {self.number} has {len(self.items)} items")
        before: MappingItem | None = None
        for item in self.items:
            if min(item.generation, item.queue_id, item.start_offset) < 0 or not item.broker_name:
                raise _illegal(f"queue {self.number} has an item with a negative number or without a broker")
            if not item.is_decided and (item is not self.leader or before is None):
                raise _illegal(f"queue {self.number} has an item without a logic offset that is not its last one")
            if item.end_offset != OPEN and item.end_offset < item.start_offset:
                raise _illegal(f"queue {self.number} has an item that ends before it begins")
            if before is not None:
                _check_next(self.number, before, item)
            before = item

    def check_change(self, old: LogicQueue, *, same_epoch: bool) -> None:
        """Refuse to take this in place of `old` where that would change what readers have seen: STATIC_TOPIC_STATE."""
        known = {item.generation: item for item in old.items}
        for item in self.items:
            was = known.get(item.generation)
            if was is None or (item.is_decided and not was.is_decided):
                # A leader that begins nowhere stored nothing. One that is decided was agreed to by the old leader, so
                # it goes before any other that somebody wanted.
                continue
            if not was.is_same(item):
                raise _illegal(f"generation {item.generation} of queue {self.number} would be another physical queue")
            if was.logic_offset != item.logic_offset:
                raise _illegal(
                    f"generation {item.generation} of queue {self.number} begins at {was.logic_offset}, "
                    f"not {item.logic_offset}"
                )
        if self.leader.generation < old.leader.generation or self.items[0].generation > old.leader.generation:
            raise _illegal(
                f"queue {self.number} is at generation {old.leader.generation}, the new items are "
                f"{self.items[0].generation} to {self.leader.generation}"
            )
        if same_epoch and old.leader.is_decided and not self.leader.is_same(old.leader):
            raise _illegal(f"queue {self.number} would get another leader in the same epoch")


def _check_next(number: int, before: MappingItem, item: MappingItem) -> None:
    if item.generation <= before.generation:
        raise _illegal(f"the generations of queue {number} do not rise")
    if not item.is_decided:
        return
    ends = before.logic_offset if before.end_offset == OPEN else before.logic(before.end_offset)
    if item.logic_offset < ends:
        raise _illegal(f"generation {item.generation} of queue {number} begins at {item.logic_offset}, before {ends}")


@dataclass(frozen=True, slots=True)
class TopicMapping:
    """What one broker knows of a static topic: how many queues it has, and those that the broker leads or led.

    `epoch` rises with every change of the topic; a broker refuses an older one.
    """

    topic: str
    broker_name: str
    total_queues: int
    epoch: int
    queues: Mapping[int, LogicQueue] = field(default_factory=dict)
    scope: str = GLOBAL_SCOPE

    @property
    def led_queues(self) -> dict[int, int]:
        """The logic queues that the broker stores messages for now, by number, and their physical queues."""
        return {
            number: queue.leader.queue_id
            for number, queue in sorted(self.queues.items())
            if queue.leads(self.broker_name)
        }

    def find(self, queue_id: int) -> LogicQueue | None:
        """The logic queue to which a physical queue of this broker belongs, or None."""
        return next(
            (queue for queue in self.queues.values() if queue.own(self.broker_name, queue_id) is not None), None
        )

    def check(self) -> None:
        """Refuse a mapping that contradicts itself: STATIC_TOPIC_STATE."""
        if not 1 <= self.total_queues <= MAX_QUEUES or self.epoch < 0:
            raise _illegal(f"topic {self.topic} would have {self.total_queues} queues in epoch {self.epoch}")
        seen: dict[tuple[str, int], int] = {}
        for number, queue in self.queues.items():
            if number != queue.number or number >= self.total_queues:
                raise _illegal(f"topic {self.topic} has {self.total_queues} queues, not {number}")
            queue.check()
            for item in queue.items:
                place = (item.broker_name, item.queue_id)
                if place in seen:
                    raise _illegal(
                        f"queue {item.queue_id} of {item.broker_name} would be in queue {seen[place]} and in {number}"
                    )
                seen[place] = number

    def update(self, new: TopicMapping, *, force: bool = False) -> TopicMapping:
        """This mapping after a change: the new one, with the queues that only this one has. STATIC_TOPIC_STATE.

        With `force` it is not looked at whether the change fits what was there.
        """
        new.check()
        if new.broker_name != self.broker_name or new.topic != self.topic:
            raise _illegal(f"the mapping is of broker {new.broker_name} and topic {new.topic}")
        if not force:
            self._check_change(new)
        kept = {number: queue for number, queue in self.queues.items() if number not in new.queues}
        return replace(new, queues={**kept, **new.queues})

    def _check_change(self, new: TopicMapping) -> None:
        if new.epoch < self.epoch:
            raise _illegal(f"topic {self.topic} is in epoch {self.epoch} here; the change is of epoch {new.epoch}")
        if new.total_queues < self.total_queues:
            raise _illegal(f"topic {self.topic} has {self.total_queues} queues and cannot have fewer")
        for number, queue in new.queues.items():
            old = self.queues.get(number)
            if old is not None:
                queue.check_change(old, same_epoch=new.epoch == self.epoch)


def merged_queues(mappings: Iterable[TopicMapping]) -> dict[int, LogicQueue]:
    """The newest that any broker knows of each logic queue of a topic, by number.

    Newer is a higher generation, then a leader that is decided, then one that the leader before it has heard of.
    """
    found: dict[int, tuple[tuple[int, bool, bool], LogicQueue]] = {}
    for mapping in mappings:
        for number, queue in mapping.queues.items():
            age = _age(queue.items, mapping.broker_name)
            if number not in found or age > found[number][0]:
                found[number] = age, queue
    return {number: queue for number, (_, queue) in sorted(found.items())}


def _age(items: Sequence[MappingItem], told_by: str) -> tuple[int, bool, bool]:
    leader = items[-1]
    is_agreed = not leader.is_decided and items[-2].broker_name == told_by
    return leader.generation, leader.is_decided, is_agreed


def _illegal(words: str) -> NameRefused:
    return NameRefused("STATIC_TOPIC_STATE", f"The mapping of the queues does not fit: {words}.")
