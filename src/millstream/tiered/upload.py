"""Putting a stretch of the log into objects: read once, in order, and put object by object. Blocks; for a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.model.backoff import Backoff
from millstream.model.errors import StoreError
from millstream.protocol.checksum import crc32
from millstream.store.log.log_walk import LogWalk
from millstream.tiered.chunk import ChunkFooter, encode_chunk
from millstream.tiered.cold_map import MAX_STRETCH_OBJECTS, ColdObject, ColdPart, ColdStretch, object_key
from millstream.tiered.objects import ObjectExists, ObjectStore, ObjectStoreAway
from millstream.tiered.queue_records import GatheredRecords, QueueRecords
from millstream.tiered.stretch import share_out
from millstream.tiered.work_progress import WorkProgress

__all__ = ["STRETCH_BYTES", "GatheredStretch", "StretchUpload", "gather_stretch"]

STRETCH_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the log of one stretch at most, but for a last record: all of them are held in memory at one time."""

MAX_ATTEMPTS: Final = 5
"""Attempts at one request, with growing waits between them; then the whole stretch waits for its next turn."""

_RETRY: Final = Backoff(0.2, 5.0)


@dataclass(frozen=True, slots=True)
class GatheredStretch:
    """What goes up of the log from `log_begin` to before `log_end`: the queues by topic and number."""

    log_begin: int
    log_end: int
    queues: Sequence[QueueRecords]


def gather_stretch(
    walk: LogWalk,
    first_of: Callable[[str], int | None],
    max_bytes: int = STRETCH_BYTES,
    pause: Callable[[], None] = lambda: None,
) -> GatheredStretch:
    """The records of a stretch that begins where the walk does and ends where it does, sooner behind `max_bytes`.

    `first_of` says of a topic from which log offset on its records go up; None: none does. `pause` is called between
    pieces of the work.
    """
    log_begin, gathered = walk.position, GatheredRecords(first_of)

    def take(data: bytes, log_offset: int) -> int:
        pause()
        return gathered.take(data, log_offset)

    walk.hand_out(take, max_bytes)
    return GatheredStretch(log_begin, walk.position, gathered.finish())


@dataclass(frozen=True, slots=True)
class StretchUpload:
    """Puts stretches of one broker. `class_of` tells which topics may share objects; see `share_out`.

    A request that fails is made again after a wait, `MAX_ATTEMPTS` times. Raises ObjectStoreDenied, ObjectStoreAway.
    """

    objects: ObjectStore
    cluster: str
    broker: str
    class_of: Callable[[str], int] = lambda _topic: 0
    sleep: Callable[[float], None] = time.sleep
    pause: Callable[[], None] = lambda: None
    """Called between pieces of the work."""

    def put(
        self,
        name: str,
        row: ColdStretch,
        stretch: GatheredStretch,
        first_number: int = 0,
        progress: WorkProgress | None = None,
    ) -> tuple[ColdObject, ...]:
        """Put all objects of the row of that name; what they hold once all of them are there.

        `first_number` is how many the row has already. `progress` hears of each as soon as it is there.
        """
        progress = progress or WorkProgress()
        found: list[ColdObject] = []
        for number, parts in enumerate(share_out(stretch.queues, self.class_of), first_number):
            if number >= MAX_STRETCH_OBJECTS:
                raise StoreError("STORE_FAILED", f"The stretch {name} has more than {MAX_STRETCH_OBJECTS} objects.")
            data, footer = encode_chunk(
                parts,
                cluster=self.cluster,
                broker=self.broker,
                epoch=row.epoch,
                log_begin=row.log_begin,
                log_end=row.log_end,
                pause=self.pause,
            )
            key = object_key(name, number)
            self._put(key, data)
            found.append(ColdObject(key, len(data), crc32(data), _parts_of(footer)))
            progress.add_object(found[-1])
        return tuple(found)

    def _put(self, key: str, data: bytes) -> None:
        for attempt in range(MAX_ATTEMPTS):
            try:
                self.objects.put(key, data, create_only=True)
                return
            except ObjectExists:
                # Keys are of one attempt at one stretch: an earlier request arrived, and its answer was lost.
                if attempt and self.objects.get(key) == data:
                    return
                raise
            except ObjectStoreAway:
                if attempt + 1 == MAX_ATTEMPTS:
                    raise
                self.sleep(_RETRY.wait_s(attempt))
                # An attempt may take minutes, and the number of them is bounded here.
                self.pause()


def _parts_of(footer: ChunkFooter) -> tuple[ColdPart, ...]:
    return tuple(
        ColdPart(
            part.topic,
            part.queue_id,
            part.first_queue_offset,
            part.next_queue_offset,
            min(block.first_stored_ms for block in part.blocks),
            max(block.last_stored_ms for block in part.blocks),
        )
        for part in footer.parts
    )
