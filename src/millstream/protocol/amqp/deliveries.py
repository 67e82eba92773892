"""Unacknowledged deliveries of one channel by tag, and the credit of its consumers. Pure."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from millstream.protocol.amqp.reply_codes import ChannelFailure, ReplyCode

__all__ = ["MAX_UNACKNOWLEDGED", "Credit", "DeliveryTags"]

MAX_UNACKNOWLEDGED: Final = 2_000
"""Deliveries of a channel that are not acknowledged at most, where the client sets no prefetch count."""

_T = TypeVar("_T")


class DeliveryTags(Generic[_T]):
    """Tags count the deliveries of a channel; 1 is the first. `T` is what the owner keeps of each."""

    __slots__ = ("_last", "_waiting")

    def __init__(self) -> None:
        self._last = 0
        # In the order of the tags.
        self._waiting: dict[int, _T] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def skip(self) -> int:
        """The tag of a delivery that needs no acknowledgement."""
        self._last += 1
        return self._last

    def add(self, delivery: _T) -> int:
        """The tag of a delivery."""
        self._last = tag = self._last + 1
        self._waiting[tag] = delivery
        return tag

    def items(self) -> list[_T]:
        """All that wait, the oldest first."""
        return list(self._waiting.values())

    def take(self, tag: int, *, multiple: bool) -> list[_T]:
        """What the peer speaks of, the oldest first; `multiple` with tag 0 means all.

        ChannelFailure (PRECONDITION_FAILED) for a tag that does not wait.
        """
        waiting = self._waiting
        if not multiple:
            if tag not in waiting:
                raise self._unknown(tag)
            return [waiting.pop(tag)]
        if tag == 0:
            return self.take_all()
        if tag > self._last or (tag not in waiting and not (waiting and next(iter(waiting)) < tag)):
            raise self._unknown(tag)
        taken = []
        for one in list(waiting):
            if one > tag:
                break
            taken.append(waiting.pop(one))
        return taken

    def take_all(self) -> list[_T]:
        """All that wait, the oldest first; none of them waits any more."""
        taken = list(self._waiting.values())
        self._waiting.clear()
        return taken

    def _unknown(self, tag: int) -> ChannelFailure:
        return ChannelFailure(ReplyCode.PRECONDITION_FAILED, f"unknown delivery tag {tag}")


class Credit:
    """How many deliveries more may be under way. A limit of 0 is that of `MAX_UNACKNOWLEDGED`."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.used = 0

    @property
    def left(self) -> int:
        """How many more; 0 where more are under way than a limit that was lowered."""
        return max((self.limit or MAX_UNACKNOWLEDGED) - self.used, 0)
