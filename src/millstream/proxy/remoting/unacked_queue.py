"""What a pulling client holds of one queue, as the proxy knows it: a pull takes deliveries, a commit acknowledges them.

The client counts by offsets: it pulls from one on, and commits the first that it has not consumed. A message gets the
offset that it has in its queue. One that is delivered again would lie before what the client has seen, where its
commits say nothing; it, and whatever comes after it, gets the next offset that was not used yet. So the offsets of a
client only grow, and a commit means what it says. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["UnackedDelivery", "UnackedQueue"]


@dataclass(frozen=True, slots=True)
class UnackedDelivery:
    """One delivery: the text of its receipt handle, where its message lies in the log of which broker, and which
    delivery it is."""

    handle: str
    log_offset: int
    attempt: int = 1
    broker_name: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """Broker and log offset, which no other message has."""
        return self.broker_name, self.log_offset


class UnackedQueue:
    """One queue at one client."""

    def __init__(self) -> None:
        self._next: int | None = None
        # In order of offset: each one that enters is greater than all before it.
        self._held: dict[int, UnackedDelivery] = {}
        self._offsets: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        """Deliveries that the client holds."""
        return len(self._held)

    def note_pull(self, offset: int) -> list[UnackedDelivery]:
        """The client asks for what is at the offset and behind; what it says by that it no longer has.

        A client that drops a queue, or loses an answer, comes back to an offset that it was given before.
        """
        lost = [one for own, one in self._held.items() if own >= offset]
        for one in lost:
            self._remove(one)
        self._next = offset
        return lost

    def give(self, queue_offset: int, delivery: UnackedDelivery) -> int:
        """The client gets a message of that offset in its queue; the offset under which it gets it."""
        assert self._next is not None, "nothing was pulled"
        former = self._offsets.get(delivery.place)
        if former is not None:
            # Its time was over, so the broker delivered it again; the former handle is worth nothing.
            self._remove(self._held[former])
        offset = max(queue_offset, self._next)
        self._held[offset] = delivery
        self._offsets[delivery.place] = offset
        self._next = offset + 1
        return offset

    @property
    def next_offset(self) -> int:
        """Where the client is to go on."""
        return self._next or 0

    def note_commit(self, offset: int) -> list[UnackedDelivery]:
        """The client has consumed all below the offset: what is to be acknowledged."""
        done = []
        for own, one in self._held.items():
            if own >= offset:
                break
            done.append(one)
        for one in done:
            self._remove(one)
        return done

    def note_sent_back(self, log_offset: int, broker_name: str = "") -> UnackedDelivery | None:
        """The client could not consume the message: its delivery, None if the client does not hold it.

        Of a queue that moved, a client names the broker that has it now, and the message may lie at another one.
        """
        offset = self._offsets.get((broker_name, log_offset))
        if offset is None:
            offset = next((own for place, own in self._offsets.items() if place[1] == log_offset), None)
        if offset is None:
            return None
        one = self._held[offset]
        self._remove(one)
        return one

    def restore(self, deliveries: Iterable[UnackedDelivery]) -> None:
        """What was to be acknowledged or sent back could not be: the next commit is to try again."""
        first = min(self._held, default=self.next_offset)
        before = {}
        for number, one in enumerate(reversed(list(deliveries))):
            offset = first - 1 - number
            before[offset] = one
            self._offsets[one.place] = offset
        self._held = {offset: before[offset] for offset in sorted(before)} | self._held

    def drop(self) -> list[UnackedDelivery]:
        """The client is gone: all that it held."""
        held = list(self._held.values())
        self._held.clear()
        self._offsets.clear()
        return held

    def _remove(self, one: UnackedDelivery) -> None:
        del self._held[self._offsets.pop(one.place)]
