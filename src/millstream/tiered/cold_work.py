"""The cold work that takes the processor for long: blocks that are verified, stretches of the log that go up, merges.

`ColdWork` has two forms: `WorkHere` does it in the threads that ask, `process.cold_process` in a process of its own.
Calls block.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.model.errors import StoreError
from millstream.store.log.log_walk import LogWalk
from millstream.tiered.checked_block import CheckedBlock, check_block
from millstream.tiered.chunk import BlockInfo, damage_of
from millstream.tiered.cold_map import ColdObject, ColdStretch
from millstream.tiered.merging import merge_objects
from millstream.tiered.objects import ObjectStore, ObjectStoreAway
from millstream.tiered.upload import GatheredStretch, StretchUpload, gather_stretch
from millstream.tiered.work_progress import WorkProgress

__all__ = ["BlockBytes", "ColdWork", "GatheredPart", "StretchName", "WorkHere"]

BlockBytes = tuple[bytes | memoryview, bytes | memoryview]
"""What `check_block` gives of a block."""


@dataclass(frozen=True, slots=True)
class GatheredPart:
    """What a part of the log has that goes up."""

    log_end: int
    is_empty: bool
    damaged_places: int


@dataclass(frozen=True, slots=True)
class StretchName:
    """Whose stretch it is, and the name that its row has."""

    cluster: str
    broker: str
    name: str


class ColdWork(Protocol):
    """Fit for any thread, but for one upload at a time. Raises ObjectStoreDenied, ObjectStoreAway."""

    def read_block(self, key: str, info: BlockInfo) -> BlockBytes:
        """A block of an object, verified. Raises CHUNK_DAMAGED, ObjectNotFound."""
        ...

    @property
    def reads_soon(self) -> bool:
        """Whether `read_soon` may be asked now, in the event loop's own thread."""
        ...

    async def read_soon(self, key: str, info: BlockInfo) -> BlockBytes:
        """As `read_block`, for an event loop."""
        ...

    def find_record(self, key: str, infos: Sequence[BlockInfo], log_offset: int) -> bytes | None:
        """The record of that log offset in one of the blocks. Raises ObjectNotFound, and CHUNK_DAMAGED where it may
        have been in a damaged one."""
        ...

    def gather(self, walk: LogWalk, first_of: Mapping[str, int], max_bytes: int) -> GatheredPart:
        """Gather what goes up of topics from their log offsets on, and keep it for `put`: see `gather_stretch`."""
        ...

    def put(self, name: StretchName, row: ColdStretch, class_of: Mapping[str, int]) -> tuple[ColdObject, ...]:
        """Put what was gathered last, which is the row's: see `StretchUpload`."""
        ...

    def merge(
        self,
        name: StretchName,
        row: ColdStretch,
        sources: Sequence[ColdObject],
        class_of: Mapping[str, int],
        progress: WorkProgress,
    ) -> tuple[ColdObject, ...]:
        """Put the messages of objects into new ones, which are the row's: see `merge_objects`. Raises as that."""
        ...

    @property
    def starts(self) -> int:
        """How many processes were started for it."""
        ...

    @property
    def pid(self) -> int | None:
        """The number of the process that does it; None where there is none now."""
        ...

    def close(self) -> None:
        """End what it holds; no call after this."""
        ...


class WorkHere:
    """Work in the threads that ask. `pause` is called between pieces of an upload, `let_others_run` between the steps
    of reading a block."""

    starts: Final = 0
    pid: Final = None
    reads_soon: Final = False

    def __init__(
        self,
        objects: ObjectStore,
        pause: Callable[[], None] = lambda: None,
        let_others_run: Callable[[], None] = lambda: None,
    ) -> None:
        self._objects = objects
        self._pause = pause
        self._let_others_run = let_others_run
        self._gathered: GatheredStretch | None = None
        self._checking = threading.Lock()

    def read_block(self, key: str, info: BlockInfo) -> BlockBytes:
        """See `ColdWork`."""
        [frame] = self._read(key, [info])
        # One at a time: an event loop of this process, which wants the interpreter back after each of its own calls,
        # waits for one thread then, and not for all that fetch.
        with self._checking:
            return check_block(key, info, frame, self._let_others_run)

    async def read_soon(self, key: str, info: BlockInfo) -> BlockBytes:
        """See `ColdWork`: never asked."""
        return await asyncio.to_thread(self.read_block, key, info)

    def find_record(self, key: str, infos: Sequence[BlockInfo], log_offset: int) -> bytes | None:
        """See `ColdWork`."""
        damage: StoreError | None = None
        for info, frame in zip(infos, self._read(key, infos), strict=True):
            try:
                with self._checking:
                    raw, places = check_block(key, info, frame, self._let_others_run)
            except StoreError as error:
                # The record may be in another one.
                damage = error
                continue
            block = CheckedBlock(info.first_queue_offset, info.next_queue_offset, raw, places)
            record = block.find_log_offset(log_offset)
            if record is not None:
                return bytes(record)
        if damage is not None:
            raise damage
        return None

    def gather(self, walk: LogWalk, first_of: Mapping[str, int], max_bytes: int) -> GatheredPart:
        """See `ColdWork`."""
        self._gathered = None
        stretch = gather_stretch(walk, first_of.get, max_bytes, self._pause)
        self._gathered = stretch
        return GatheredPart(stretch.log_end, not stretch.queues, walk.damaged_places)

    def put(
        self, name: StretchName, row: ColdStretch, class_of: Mapping[str, int], progress: WorkProgress | None = None
    ) -> tuple[ColdObject, ...]:
        """See `ColdWork`."""
        stretch = self._gathered
        if stretch is None or (stretch.log_begin, stretch.log_end) != (row.log_begin, row.log_end):
            # A process that was started again has nothing of what the one before it gathered.
            raise ObjectStoreAway("what was gathered of the log is gone")
        objects = self._upload(name, class_of).put(name.name, row, stretch, progress=progress)
        self._gathered = None
        return objects

    def merge(
        self,
        name: StretchName,
        row: ColdStretch,
        sources: Sequence[ColdObject],
        class_of: Mapping[str, int],
        progress: WorkProgress,
    ) -> tuple[ColdObject, ...]:
        """See `ColdWork`."""
        return merge_objects(self._objects, self._upload(name, class_of), name.name, row, sources, progress)

    def close(self) -> None:
        """See `ColdWork`."""

    def _upload(self, name: StretchName, class_of: Mapping[str, int]) -> StretchUpload:
        return StretchUpload(
            self._objects, name.cluster, name.broker, lambda topic: class_of.get(topic, 0), pause=self._pause
        )

    def _read(self, key: str, infos: Sequence[BlockInfo]) -> list[bytes]:
        try:
            return self._objects.get_many(key, [(info.position, info.position + info.size_bytes) for info in infos])
        except ValueError as error:
            # The object is shorter than its own footer says.
            raise damage_of(key, str(error)) from error
