"""The process for a broker's cold work: `python -m millstream.tiered.process.worker PLACE`, a socket as standard input.

It obeys several orders at a time, opens the object store itself, and ends at once when its broker does: the other end
of the socket has gone then.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec

from millstream.model.errors import MillstreamError
from millstream.store.log.log_walk import walk_files
from millstream.tiered.cold_map import ColdObject
from millstream.tiered.cold_work import WorkHere
from millstream.tiered.merging import ObjectUnreadable
from millstream.tiered.objects import ObjectStore
from millstream.tiered.places import ObjectPlace
from millstream.tiered.process.channel import Channel
from millstream.tiered.process.frames import BrokenFrame, ColdFrame
from millstream.tiered.process.orders import (
    ORDERS,
    Answer,
    BlockIsRead,
    FindRecord,
    GatheredLog,
    GatherLog,
    MergeObjects,
    ObjectIsPut,
    ObjectsArePut,
    Order,
    PartsArePut,
    Progress,
    PutObjects,
    ReadBlock,
    RecordIsFound,
    WorkGoesOn,
    WorkRefused,
    encode_head,
)
from millstream.tiered.work_progress import WorkProgress

__all__ = ["ColdWorker", "main"]

NICENESS: Final = 10
"""How far the process stands back behind its broker where both want the processor."""

WORKER_THREADS: Final = 8
"""Orders to read that are under way at a time, as many as a broker's threads; and an upload beside them."""

_SWITCH_S: Final = 0.0005
"""Seconds after which an upload lets readers go on."""

_MAX_WORDS: Final = 200

TOLD_S: Final = 1.0
"""Seconds after which an upload or a merge says that it goes on, where it has nothing else to say."""

TOLD_PARTS: Final = 512
"""Parts of an object that one frame tells of."""

_Said = tuple[Answer, tuple[bytes | memoryview, ...]]
"""An answer, and the pieces of its body."""


class _ToldProgress(WorkProgress):
    """Tells the broker of all progress, soon."""

    __slots__ = ("_now_s", "_tell", "_told", "_told_s")

    def __init__(self, tell: Callable[[Progress], None], now_s: Callable[[], float]) -> None:
        super().__init__()
        self._tell = tell
        self._now_s = now_s
        self._told_s = now_s()
        self._told = (0, 0)

    def add_object(self, one: ColdObject) -> None:
        super().add_object(one)
        parts, first = one.parts, 0
        while len(parts) - first > TOLD_PARTS:
            self._tell(PartsArePut(parts[first : first + TOLD_PARTS]))
            first += TOLD_PARTS
        self._tell(ObjectIsPut(msgspec.structs.replace(one, parts=parts[first:])))
        self._told_s = self._now_s()

    def go_on(self) -> None:
        """A piece of the work is done."""
        if self._now_s() - self._told_s >= TOLD_S:
            self.end()

    def end(self) -> None:
        """Say what was not said yet."""
        requests, bytes_read = self._told
        self._tell(WorkGoesOn(self.requests - requests, self.bytes_read - bytes_read))
        self._told = self.requests, self.bytes_read
        self._told_s = self._now_s()


class ColdWorker:
    """Does what orders say, with the object store that `open_objects` opens at the first of them."""

    def __init__(self, open_objects: Callable[[], ObjectStore], now_s: Callable[[], float] = time.monotonic) -> None:
        self._open_objects = open_objects
        self._now_s = now_s
        self._opened: WorkHere | None = None
        self._progress: _ToldProgress | None = None
        """Of the upload or merge under way."""

    def obey(self, order: Order, tell: Callable[[Progress], None]) -> _Said:
        """Do it; what came of it. `tell` hears meanwhile how it goes on."""
        try:
            if not isinstance(order, (GatherLog, PutObjects, MergeObjects)):
                return self._obey(order, WorkProgress())
            progress = self._progress = _ToldProgress(tell, self._now_s)
            try:
                return self._obey(order, progress)
            finally:
                self._progress = None
                progress.end()
        except MillstreamError as error:
            key = error.key if isinstance(error, ObjectUnreadable) else None
            return WorkRefused(error.name, error.message, error.remedy, key), ()
        except Exception as error:  # noqa: BLE001 - told to the broker, which tries again
            words = " ".join(f"{type(error).__name__}: {error}"[:_MAX_WORDS].split())
            return WorkRefused("INTERNAL_ERROR", f"Unexpected {words}."), ()

    def _obey(self, order: Order, progress: WorkProgress) -> _Said:
        work = self._opened
        if work is None:
            work = self._opened = WorkHere(self._open_objects(), self._pause, _let_others_run)
        match order:
            case ReadBlock(key, info):
                raw, places = work.read_block(key, info)
                return BlockIsRead(len(raw)), (raw, places)
            case FindRecord(key, infos, log_offset):
                return RecordIsFound(), (work.find_record(key, infos, log_offset) or b"",)
            case GatherLog(files, first_of, max_bytes):
                return GatheredLog(work.gather(walk_files(files), first_of, max_bytes)), ()
            case PutObjects(name, row, class_of):
                work.put(name, row, class_of, progress)
            case MergeObjects(name, row, sources, class_of):
                work.merge(name, row, sources, class_of, progress)
        return ObjectsArePut(), ()

    def _pause(self) -> None:
        """Between pieces of an upload or a merge."""
        _let_others_run()
        if self._progress is not None:
            self._progress.go_on()


def _let_others_run() -> None:
    """Give the processor to the broker if it waits for it: the system would look at that with the next tick of its
    clock alone, up to 4 ms later."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()


def serve(worker: ColdWorker, channel: Channel) -> None:
    """Obey orders until the other end has gone."""
    readers = ThreadPoolExecutor(WORKER_THREADS, thread_name_prefix="millstream-cold-read")
    uploader = ThreadPoolExecutor(1, thread_name_prefix="millstream-upload")

    def answer(frame: ColdFrame, order: Order) -> None:
        said, body = worker.obey(order, lambda progress: channel.send(frame.number, encode_head(progress)))
        try:
            channel.send(frame.number, encode_head(said), *body)
        except OSError:
            # The broker has gone, as the receiving thread finds as well.
            return

    while (frame := channel.receive()) is not None:
        order = ORDERS.decode(frame.head)
        is_upload = isinstance(order, (GatherLog, PutObjects, MergeObjects))
        (uploader if is_upload else readers).submit(partial(answer, frame, order))


def main(arguments: list[str]) -> int:
    """Obey the orders of the socket that is standard input until its other end has gone."""
    os.nice(NICENESS)
    sys.setswitchinterval(_SWITCH_S)
    place = msgspec.json.decode(arguments[0], type=ObjectPlace)
    try:
        serve(ColdWorker(place.open), Channel(socket.socket(fileno=0)))
    except (OSError, BrokenFrame, msgspec.MsgspecError) as error:
        sys.stderr.write(f"The process for cold messages ends: {error}\n")
    # At once: what is under way is nobody's any more, and an upload must not go on without its broker.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
