"""Store times of queues, by which micro-batches are cut; cold ones come from the object store.

Whatever cannot be read there is the broker's to tell. Both tell the same, so a cut does not depend on who was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from millstream.model.errors import MillstreamError
from millstream.protocol.record import store_timestamp_ms
from millstream.streams.spark.source.cold_log import STORES, OpenStores
from millstream.streams.spark.source.cold_pieces import ColdSpan
from millstream.streams.spark.source.position import Slice
from millstream.streams.spark.source.topic_log import TopicLog
from millstream.tiered.cold_map import ColdRange
from millstream.tiered.cold_scan import ColdScan
from millstream.tiered.places import ObjectPlace

__all__ = ["ColdTimes"]


class ColdTimes:
    """Of one topic, for one cut. `spans` gives where a queue's cold messages lie; it is asked once for each queue."""

    def __init__(
        self, log: TopicLog, topic: str, spans: Callable[[str], Sequence[ColdSpan]], stores: OpenStores = STORES
    ) -> None:
        self._log = log
        self._topic = topic
        self._spans = cache(spans)
        self._stores = stores

    def offset_at(self, queue: str, time_ms: int) -> int:
        """See `TopicLog.offset_at`."""

        def search(scan: ColdScan, queue_id: int, where: ColdRange) -> int | None:
            return scan.offset_at(self._topic, queue_id, where, time_ms)

        found = self._ask_store(queue, lambda where: where.last_stored_ms >= time_ms, search)
        return self._log.offset_at(self._topic, queue, time_ms) if found is None else found

    def stored_ms(self, queue: str, offset: int) -> int | None:
        """When the record of that offset was stored; None where it is there no more."""

        def look(scan: ColdScan, queue_id: int, where: ColdRange) -> int | None:
            block = next(scan.blocks(self._topic, queue_id, where, offset, offset + 1), None)
            return None if block is None else block.stored_ms(offset)

        found = self._ask_store(queue, lambda one: one.first_queue_offset <= offset < one.next_queue_offset, look)
        if found is not None:
            return found
        first = next(iter(self._log.read(self._topic, Slice(queue, offset, offset + 1))), ())
        return next((store_timestamp_ms(record) for record in first), None)

    def _ask_store(
        self,
        queue: str,
        fits: Callable[[ColdRange], bool],
        look: Callable[[ColdScan, int, ColdRange], int | None],
    ) -> int | None:
        """What `look` finds in the first range that fits; None where none does, or it cannot be read."""
        place, where = self._find(queue, fits)
        if place is None or where is None:
            return None
        try:
            return look(self._stores.scan(place), int(queue.rpartition("/")[2]), where)
        except MillstreamError as error:
            self._stores.note_failure(place, error)
            return None

    def _find(self, queue: str, fits: Callable[[ColdRange], bool]) -> tuple[ObjectPlace, ColdRange] | tuple[None, None]:
        ranges = ((span.place, where) for span in self._spans(queue) for where in span.ranges)
        return next(((place, where) for place, where in ranges if fits(where)), (None, None))
