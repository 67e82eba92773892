"""A consume queue for records of other topics; see `model/light_queue.py`.

Its files are those of `consume_queue.py`. What differs is how a record is told to be the entry's: its head names its
topic's queue and its offset there, not the light queue's.
"""

from __future__ import annotations

from functools import partial

from millstream.store.consume_queue import ConsumeQueue, IndexEntry

__all__ = ["LightEntry", "LightQueue"]


class LightEntry(IndexEntry):
    """One entry of a light queue; `queue_offset` is the offset there, which the record's head does not say."""

    __slots__ = ()


_light_entry = partial(tuple.__new__, LightEntry)


class LightQueue(ConsumeQueue):
    """As `ConsumeQueue`, with entries of its own kind."""

    __slots__ = ()

    def entries(self, queue_offset: int, max_count: int) -> list[IndexEntry]:
        """As `ConsumeQueue.entries`; all are `LightEntry`."""
        first = max(queue_offset, self.min_offset)
        places = self.places(first, max_count)
        return [_light_entry((number, *place, 1)) for number, place in enumerate(places, start=first)]
