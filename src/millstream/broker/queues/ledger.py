"""The ledger of one (group, topic, queue): deliveries, their invisible times, and the consumed offset.

Three facts hold the whole state. `cursor` is the next offset that was never looked at. `in flight` are the
deliveries below it that nobody acknowledged. Everything else below the cursor is consumed. So the committed offset is
the lowest one in flight, and any number of acknowledged messages beyond a stuck one cost no memory. What keeps order
is in `fifo`.

Pure: no clock, no files. Time is wall-clock milliseconds that the caller hands in.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from msgspec import Struct

from millstream.model.errors import ConsumeRefused, MillstreamError

__all__ = ["MAX_IN_FLIGHT", "Delivery", "Ledger"]

MAX_IN_FLIGHT = 20_000
"""Deliveries of one ledger that may wait for their acknowledgement; at the limit nothing new is delivered."""

_HEAP_SLACK = 64
"""Stale heap entries that are not worth a rebuild."""


class Delivery(Struct, array_like=True, gc=False):
    """One message in flight. `pop_time_ms` tells its deliveries apart: it grows with each one.

    `taken_ms` is the time in the handle that a client holds where the delivery was renewed behind its back, else 0.
    `due` says that `visible_ms` has passed, as far as the ledger has looked. `line` and `attempt_key` are for ledgers
    that keep order. Saved as an array of its fields, because there may be many.
    """

    queue_offset: int
    pop_time_ms: int
    invisible_ms: int
    visible_ms: int
    attempts: int = 1
    due: bool = False
    line: int = 0
    attempt_key: int = 0
    taken_ms: int = 0


class Ledger:
    """Deliveries of one queue to one group, in any order of acknowledgement.

    A caller first drains `peek_due` with `redeliver` or `settle`, then goes on at `cursor` with `deliver` and
    `pass_over`, at most `room` of them.
    """

    def __init__(self, cursor: int, *, capacity: int = MAX_IN_FLIGHT, in_flight: Iterable[Delivery] = ()) -> None:
        self.cursor = cursor
        self.capacity = capacity
        self.changed = False
        """Set at every change; whoever saves the ledger clears it."""
        self.floor_ms = 0
        """Handles taken at that time or before are of deliveries that were discarded; saved with the ledger."""
        # In order of offset, always: a delivery enters once, at the cursor, and a redelivery changes it in place.
        self._in_flight = {delivery.queue_offset: delivery for delivery in sorted(in_flight, key=_by_offset)}
        self._hidden: list[tuple[int, int]] = []
        self._ready: list[int] = []
        self._due_count = 0
        self._rebuild()

    @property
    def committed(self) -> int:
        """The lowest offset that is not consumed: all below it are."""
        return next(iter(self._in_flight), self.cursor)

    @property
    def room(self) -> int:
        """How many more deliveries fit."""
        return self.capacity - len(self._in_flight)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._in_flight

    @property
    def in_flight(self) -> list[Delivery]:
        """What is in flight, by offset."""
        return list(self._in_flight.values())

    def peek_due(self, now_ms: int) -> Delivery | None:
        """The delivery of the lowest offset that is visible again, or None."""
        hidden, ready = self._hidden, self._ready
        if hidden and hidden[0][0] <= now_ms:
            self._surface(now_ms)
        while ready:
            delivery = self._in_flight.get(ready[0])
            if delivery is not None and delivery.due:
                return delivery
            heappop(ready)
        return None

    def next_due_ms(self) -> int | None:
        """When the next delivery becomes visible again (0: it is), None if nothing is in flight."""
        return 0 if self._due_count else self._next_hidden_ms()

    def _next_hidden_ms(self) -> int | None:
        hidden = self._hidden
        while hidden:
            visible_ms, queue_offset = hidden[0]
            delivery = self._in_flight.get(queue_offset)
            if delivery is not None and delivery.visible_ms == visible_ms:
                return visible_ms
            heappop(hidden)
        return None

    def redeliver(self, delivery: Delivery, now_ms: int, invisible_ms: int) -> None:
        """Deliver again what `peek_due` gave: one attempt more, the old handle is invalid."""
        delivery.attempts += 1
        self._hide(delivery, now_ms, invisible_ms)

    def deliver(self, queue_offset: int, now_ms: int, invisible_ms: int) -> Delivery:
        """Deliver an offset for the first time; offsets between the cursor and it count as consumed."""
        if queue_offset < self.cursor:
            raise ValueError(f"offset {queue_offset} was delivered before; the cursor is {self.cursor}")
        delivery = Delivery(queue_offset, self.pop_time_ms(now_ms), invisible_ms, now_ms + invisible_ms)
        self._enter(delivery)
        heappush(self._hidden, (delivery.visible_ms, queue_offset))
        return delivery

    def deliver_run(self, queue_offset: int, count: int, now_ms: int, invisible_ms: int) -> None:
        """`deliver` for `count` offsets from `queue_offset` on, of a ledger that keeps no order."""
        if queue_offset < self.cursor:
            raise ValueError(f"offset {queue_offset} was delivered before; the cursor is {self.cursor}")
        in_flight, hidden = self._in_flight, self._hidden
        pop_time_ms, visible_ms = self.pop_time_ms(now_ms), now_ms + invisible_ms
        for offset in range(queue_offset, queue_offset + count):
            in_flight[offset] = Delivery(offset, pop_time_ms, invisible_ms, visible_ms)
            heappush(hidden, (visible_ms, offset))
        if count:
            self.cursor = queue_offset + count
            self.changed = True

    def pop_time_ms(self, now_ms: int) -> int:
        """What the handle of a delivery says that begins now."""
        return max(now_ms, self.floor_ms + 1)

    def _enter(self, delivery: Delivery) -> None:
        self._in_flight[delivery.queue_offset] = delivery
        self.cursor = delivery.queue_offset + 1
        self.changed = True

    def pass_over(self, next_offset: int) -> None:
        """Move the cursor forward: what was not delivered below `next_offset` counts as consumed."""
        if next_offset > self.cursor:
            self.cursor = next_offset
            self.changed = True

    def acknowledge(self, queue_offset: int, pop_time_ms: int) -> bool:
        """Consume one delivery; False if its message is consumed already.

        Raises INVALID_RECEIPT_HANDLE where the message was delivered again or never. A delivery that is visible again
        but not yet delivered again can still be acknowledged; see `check_time`.
        """
        self.check_handle(queue_offset, pop_time_ms)
        if self.is_consumed(queue_offset):
            return False
        self._remove(self.find(queue_offset, pop_time_ms))
        return True

    def acknowledge_run(
        self, deliveries: list[tuple[int, int, int]], start: int, now_ms: int, errors: dict[int, MillstreamError]
    ) -> int:
        """Consume the deliveries from `start` on that are of one queue; the position behind them.

        Each is queue, queue offset and pop time. Each has to be in time: see `check_time` and `acknowledge`. What they
        raise goes to `errors`, by position.
        """
        in_flight, floor_ms, queue_id = self._in_flight, self.floor_ms, deliveries[start][0]
        for position in range(start, len(deliveries)):
            queue, queue_offset, pop_time_ms = deliveries[position]
            if queue != queue_id:
                return position
            delivery = in_flight.get(queue_offset)
            if (
                delivery is not None
                and delivery.pop_time_ms == pop_time_ms
                and pop_time_ms > floor_ms
                and delivery.visible_ms > now_ms
            ):
                self._remove(delivery)
                continue
            try:
                self.check_time(queue_offset, pop_time_ms, now_ms)
                self.acknowledge(queue_offset, pop_time_ms)
            except ConsumeRefused as error:
                errors[position] = error
        return len(deliveries)

    def check_time(self, queue_offset: int, pop_time_ms: int, now_ms: int) -> None:
        """Refuse a handle whose delivery is visible again or was discarded (INVALID_RECEIPT_HANDLE); not one of a
        message that is consumed."""
        self.check_handle(queue_offset, pop_time_ms)
        if self.is_consumed(queue_offset):
            return
        delivery = self.find(queue_offset, pop_time_ms)
        if delivery.visible_ms <= now_ms:
            raise ConsumeRefused(
                "INVALID_RECEIPT_HANDLE",
                f"The receipt handle for queue offset {queue_offset} ended {now_ms - delivery.visible_ms} ms ago.",
                remedy="Receive the message again; ask for a longer invisible time.",
            )

    def change_invisible(
        self, queue_offset: int, pop_time_ms: int, now_ms: int, invisible_ms: int, *, uncounted: bool = False
    ) -> Delivery:
        """Make a delivery visible `invisible_ms` from now; its handle is replaced, its attempts stay.

        `uncounted`: this delivery does not count as an attempt; the next one has its number.
        Raises INVALID_RECEIPT_HANDLE where the message is consumed or was delivered again.
        """
        delivery = self.find(queue_offset, pop_time_ms)
        self._hide(delivery, now_ms, invisible_ms)
        if uncounted:
            delivery.attempts = max(delivery.attempts - 1, 0)
        return delivery

    def renew(self, queue_offset: int, pop_time_ms: int, now_ms: int, invisible_ms: int) -> Delivery:
        """The same on the consumer's behalf: it knows nothing of the new handle, so the one that it has stays valid.

        A proxy renews, and the consumer may answer through another proxy that has never heard of it.
        """
        delivery = self.find(queue_offset, pop_time_ms)
        taken_ms = delivery.taken_ms or delivery.pop_time_ms
        self._hide(delivery, now_ms, invisible_ms)
        delivery.taken_ms = taken_ms
        return delivery

    def hold(self, delivery: Delivery, now_ms: int, invisible_ms: int) -> None:
        """Keep a delivery out of sight while the broker itself works on it; its handle stays valid."""
        popped_ms, taken_ms = delivery.pop_time_ms, delivery.taken_ms
        self._hide(delivery, now_ms, invisible_ms)
        delivery.pop_time_ms, delivery.taken_ms = popped_ms, taken_ms

    def settle(self, queue_offset: int) -> None:
        """Consume whatever is in flight at the offset, on the broker's own account."""
        delivery = self._in_flight.get(queue_offset)
        if delivery is not None:
            self._remove(delivery)

    def is_consumed(self, queue_offset: int) -> bool:
        """Whether the offset was passed and is not in flight."""
        return 0 <= queue_offset < self.cursor and queue_offset not in self._in_flight

    def find(self, queue_offset: int, pop_time_ms: int) -> Delivery:
        """The delivery that a handle stands for. Raises INVALID_RECEIPT_HANDLE if there is none (any more)."""
        delivery = self._in_flight.get(queue_offset)
        if delivery is None or not delivery.pop_time_ms:
            state = "is consumed" if self.is_consumed(queue_offset) else "was not delivered to the group"
            raise ConsumeRefused("INVALID_RECEIPT_HANDLE", f"The message at queue offset {queue_offset} {state}.")
        if pop_time_ms != delivery.pop_time_ms and (not pop_time_ms or pop_time_ms != delivery.taken_ms):
            raise ConsumeRefused(
                "INVALID_RECEIPT_HANDLE",
                f"The receipt handle for queue offset {queue_offset}, taken at {pop_time_ms}, was replaced at "
                f"{delivery.pop_time_ms}.",
            )
        return delivery

    def check_handle(self, queue_offset: int, pop_time_ms: int) -> None:
        """Refuse the handle of a discarded delivery (INVALID_RECEIPT_HANDLE), also of a message that is consumed."""
        if self.is_discarded(pop_time_ms):
            raise ConsumeRefused(
                "INVALID_RECEIPT_HANDLE",
                f"The delivery of queue offset {queue_offset}, taken at {pop_time_ms}, was discarded by a reset.",
            )

    def is_discarded(self, pop_time_ms: int) -> bool:
        """Whether a delivery of that time was discarded by a reset."""
        return pop_time_ms <= self.floor_ms

    def last_pop_ms(self) -> int:
        """The latest time that a handle of what is in flight carries; the floor if there is none."""
        return max((held.pop_time_ms for held in self._in_flight.values()), default=self.floor_ms)

    def skip_to(self, queue_offset: int) -> None:
        """Consume everything below the offset, as a group does that commits it; never goes back."""
        for delivery in [held for held in self._in_flight.values() if held.queue_offset < queue_offset]:
            self._remove(delivery)
        self.pass_over(queue_offset)

    def truncate(self, max_offset: int) -> None:
        """Forget everything from `max_offset` on: the log lost it, and other messages will have these offsets."""
        if self.cursor <= max_offset:
            return
        for delivery in [held for held in self._in_flight.values() if held.queue_offset >= max_offset]:
            self._remove(delivery)
        self.cursor = max_offset
        self.changed = True

    def shift(self, step_ms: int) -> None:
        """The caller's clock was put forward by so much, or back: what is out of sight stays so as long as it was to.

        Handles stay valid as they are.
        """
        moved = [delivery for delivery in self._in_flight.values() if not delivery.due]
        for delivery in moved:
            delivery.visible_ms += step_ms
        if moved:
            self._rebuild()
            self.changed = True

    def limit_invisible_times(self, now_ms: int) -> None:
        """Keep nothing out of sight for longer than its invisible time from now: the clock may have been ahead."""
        far = [held for held in self._in_flight.values() if held.visible_ms > now_ms + held.invisible_ms]
        for delivery in far:
            delivery.visible_ms = now_ms + delivery.invisible_ms
        if far:
            self._rebuild()
            self.changed = True

    def _hide(self, delivery: Delivery, now_ms: int, invisible_ms: int) -> None:
        if delivery.due:
            delivery.due = False
            self._due_count -= 1
        # A clock may stand still or step back; the new handle must differ from all before it all the same.
        delivery.pop_time_ms = max(now_ms, delivery.pop_time_ms + 1, self.floor_ms + 1)
        delivery.taken_ms = 0
        delivery.invisible_ms = invisible_ms
        delivery.visible_ms = now_ms + invisible_ms
        heappush(self._hidden, (delivery.visible_ms, delivery.queue_offset))
        self.changed = True
        self._drop_stale()

    def _remove(self, delivery: Delivery) -> None:
        del self._in_flight[delivery.queue_offset]
        if delivery.due:
            delivery.due = False
            self._due_count -= 1
        self.changed = True
        self._drop_stale()

    def _surface(self, now_ms: int) -> None:
        hidden = self._hidden
        while hidden and hidden[0][0] <= now_ms:
            visible_ms, queue_offset = heappop(hidden)
            delivery = self._in_flight.get(queue_offset)
            if delivery is not None and delivery.visible_ms == visible_ms and not delivery.due:
                delivery.due = True
                self._due_count += 1
                self._surface_delivery(delivery)

    def _surface_delivery(self, delivery: Delivery) -> None:
        heappush(self._ready, delivery.queue_offset)

    def _drop_stale(self) -> None:
        """Keep the heaps in proportion: entries of what was acknowledged early would stay until their time."""
        if len(self._hidden) + len(self._ready) > 2 * len(self._in_flight) + _HEAP_SLACK:
            self._rebuild()

    def _rebuild(self) -> None:
        held = self._in_flight.values()
        self._hidden = [(delivery.visible_ms, delivery.queue_offset) for delivery in held if not delivery.due]
        self._ready = [delivery.queue_offset for delivery in held if delivery.due]
        self._due_count = len(self._ready)
        heapify(self._hidden)
        heapify(self._ready)


def _by_offset(delivery: Delivery) -> int:
    return delivery.queue_offset
