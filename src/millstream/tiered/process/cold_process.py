"""Cold work in a process of its own, as its broker sees it: started when there is work, ended when there is none.

Whatever takes the processor for long holds the interpreter, and each call of an event loop that gives it up waits some
milliseconds to have it back; even a thread that only hands a block on makes it wait for a turn of the system. So the
event loop itself takes the answers, which are checked already, and orders blocks without a thread where it can.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

import msgspec

from millstream.model.backoff import Backoff
from millstream.store.log.log_walk import LogWalk
from millstream.tiered.chunk import BlockInfo
from millstream.tiered.cold_map import ColdObject, ColdPart, ColdStretch
from millstream.tiered.cold_work import BlockBytes, GatheredPart, StretchName
from millstream.tiered.objects import ObjectStoreAway
from millstream.tiered.places import ObjectPlace
from millstream.tiered.process.channel import Channel
from millstream.tiered.process.frames import BrokenFrame, ColdFrame, FrameReader
from millstream.tiered.process.orders import (
    ANSWERS,
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
from millstream.tiered.process.short_turns import ask_for_short_turns
from millstream.tiered.work_progress import WorkProgress

__all__ = ["ColdProcess"]

IDLE_S: Final = 60.0
"""Seconds without work after which the process ends, and its memory with it."""

MAX_ORDERS: Final = 32
"""Orders of threads under way at one time, and as many of the event loop; those that come later wait."""

MAX_READ_S: Final = 120.0
"""Seconds that the process takes to read at most; then it is killed, and the read is tried again later."""

MAX_UPLOAD_S: Final = 900.0
"""Seconds that an upload or a merge may be without any progress, however long it takes in all: that is longer than one
request to put an object may take."""

LOOK_S: Final = 1.0
"""Seconds between two looks at whether what is waited for takes too long."""

END_S: Final = 5.0
"""Seconds in which a process that is told to end does so, before it is killed."""

TAKEN_BYTES: Final = 32 * 1024
"""Bytes of answers that are taken in one turn of the event loop: those of a whole block take longer than a send."""

SENT_BYTES: Final = 512 * 1024
"""Bytes of answers that wait in the system for the event loop, where it allows as many: a block with its places."""

_RESTARTS: Final = Backoff(0.2, 30.0)

_log = logging.getLogger(__name__)

_Reply = tuple[Answer, bytes | memoryview]
_Waiting = Future[_Reply] | asyncio.Future[_Reply]


@dataclass(slots=True)
class _Given:
    """An order under way. What is told of it before its answer goes to `progress`, in the event loop."""

    waiting: _Waiting
    heard_s: float
    """When something was heard of it last."""
    progress: WorkProgress
    parts: list[ColdPart] = field(default_factory=list)
    """Of the object that is told of next."""

    def take(self, told: Progress) -> None:
        """Note what is done."""
        match told:
            case PartsArePut(parts):
                self.parts += parts
            case ObjectIsPut(one):
                parts, self.parts = (*self.parts, *one.parts), []
                self.progress.add_object(msgspec.structs.replace(one, parts=parts))
            case WorkGoesOn(requests, bytes_read):
                self.progress.add_read(requests, bytes_read)


class _Run:
    """One process, from its start to its end."""

    def __init__(self, place: ObjectPlace) -> None:
        self.socket, others = socket.socketpair()
        with others:
            others.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)
            # A group of its own: Ctrl-C of the terminal is for the broker. Not a session: some systems share processors
            # out between sessions, and a niceness counts for nothing there.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "millstream.tiered.process.worker", msgspec.json.encode(place).decode()],
                stdin=others.fileno(), stdout=subprocess.DEVNULL, process_group=0,
            )  # fmt: skip
        self.channel = Channel(self.socket)
        self.reader = FrameReader()
        self.waiting: dict[int, _Given] = {}
        self.used_s = 0.0
        self.is_left = False
        self.is_over = threading.Event()


class ColdProcess:
    """See `ColdWork`; `loop` is the running event loop of the broker.

    A process that ends before its time fails what it had under way as a store that does not answer; the next one is
    started after a wait that grows from one such end to the next.
    """

    def __init__(
        self,
        place: ObjectPlace,
        loop: asyncio.AbstractEventLoop,
        *,
        idle_s: float = IDLE_S,
        restarts: Backoff | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.starts = 0
        """See `ColdWork`."""
        self._place = place
        self._loop = loop
        self._idle_s = idle_s
        self._restarts = restarts or _RESTARTS
        self._now_s = now_s
        self._run: _Run | None = None
        self._mutex = threading.Lock()
        self._orders = threading.BoundedSemaphore(MAX_ORDERS)
        self._number = 0
        self._failures = 0
        self._not_before_s = -1.0
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """See `ColdWork`."""
        run = self._run
        return None if run is None else run.process.pid

    @property
    def reads_soon(self) -> bool:
        """See `ColdWork`."""
        run = self._run
        return run is not None and len(run.waiting) < MAX_ORDERS

    async def read_soon(self, key: str, info: BlockInfo) -> BlockBytes:
        """See `ColdWork`."""
        waiting = self._loop.create_future()
        run, _ = self._give(ReadBlock(key, info), waiting, starts=False)
        try:
            async with asyncio.timeout(MAX_READ_S):
                reply = await waiting
        except TimeoutError:
            raise self._give_up(run, MAX_READ_S) from None
        return _block_of(*reply)

    def read_block(self, key: str, info: BlockInfo) -> BlockBytes:
        """See `ColdWork`."""
        return _block_of(*self._order(ReadBlock(key, info), MAX_READ_S))

    def find_record(self, key: str, infos: Sequence[BlockInfo], log_offset: int) -> bytes | None:
        """See `ColdWork`."""
        answer, body = self._order(FindRecord(key, tuple(infos), log_offset), MAX_READ_S)
        _check(answer)
        assert isinstance(answer, RecordIsFound)
        return bytes(body) or None

    def gather(self, walk: LogWalk, first_of: Mapping[str, int], max_bytes: int) -> GatheredPart:
        """See `ColdWork`."""
        answer, _ = self._order(GatherLog(walk.files(max_bytes), dict(first_of), max_bytes), MAX_UPLOAD_S)
        _check(answer)
        assert isinstance(answer, GatheredLog)
        return answer.gathered

    def put(self, name: StretchName, row: ColdStretch, class_of: Mapping[str, int]) -> tuple[ColdObject, ...]:
        """See `ColdWork`."""
        return self._put(PutObjects(name, row, dict(class_of)), WorkProgress())

    def merge(
        self,
        name: StretchName,
        row: ColdStretch,
        sources: Sequence[ColdObject],
        class_of: Mapping[str, int],
        progress: WorkProgress,
    ) -> tuple[ColdObject, ...]:
        """See `ColdWork`."""
        return self._put(MergeObjects(name, row, tuple(sources), dict(class_of)), progress)

    def close(self) -> None:
        """See `ColdWork`. What is under way fails. The event loop must be running."""
        with self._mutex:
            self._is_closed = True
            run = self._run
        if run is not None:
            run.channel.hang_up()
            run.is_over.wait()

    # Orders

    def _put(self, order: PutObjects | MergeObjects, progress: WorkProgress) -> tuple[ColdObject, ...]:
        answer, _ = self._order(order, MAX_UPLOAD_S, progress)
        _check(answer)
        assert isinstance(answer, ObjectsArePut)
        return tuple(progress.objects)

    def _order(self, order: Order, max_s: float, progress: WorkProgress | None = None) -> _Reply:
        """Wait, in a thread, for an answer, as long as no `max_s` are without progress; start the process if there is
        none."""
        with self._orders:
            waiting: Future[_Reply] = Future()
            run, given = self._give(order, waiting, progress, starts=True)
            while (left_s := given.heard_s + max_s - self._now_s()) > 0:
                try:
                    return waiting.result(min(left_s, LOOK_S))
                except TimeoutError:
                    continue
            raise self._give_up(run, max_s)

    def _give(
        self, order: Order, waiting: _Waiting, progress: WorkProgress | None = None, *, starts: bool
    ) -> tuple[_Run, _Given]:
        head = encode_head(order)
        with self._mutex:
            run = self._run
            if run is None:
                run = self._start(starts)
            self._number = (self._number + 1) & 0xFFFFFFFF
            number = self._number
            given = run.waiting[number] = _Given(waiting, self._now_s(), progress or WorkProgress())
        try:
            run.channel.send(number, head)
        except OSError:
            # It has ended, as the event loop finds as well.
            run.channel.hang_up()
        return run, given

    def _give_up(self, run: _Run, max_s: float) -> ObjectStoreAway:
        run.process.kill()
        return ObjectStoreAway(f"the process for cold messages was killed: no answer in {max_s:.0f} s")

    # From its start to its end

    def _start(self, may_start: bool) -> _Run:
        wait_s = self._not_before_s - self._now_s()
        if self._is_closed:
            raise ObjectStoreAway("the broker is closing")
        if wait_s > 0 or not may_start:
            raise ObjectStoreAway(f"the process for cold messages ended and is started again in {wait_s:.1f} s")
        try:
            run = _Run(self._place)
        except OSError as error:
            self._note_failure()
            raise ObjectStoreAway(f"the process for cold messages does not start: {error}") from error
        self.starts += 1
        self._run = run
        run.used_s = self._now_s()
        self._loop.call_soon_threadsafe(self._listen, run)
        return run

    def _listen(self, run: _Run) -> None:
        # The event loop shares processors with the process from now on.
        ask_for_short_turns()
        self._loop.add_reader(run.socket, self._receive, run)
        self._loop.call_later(self._idle_s, self._look_whether_idle, run)

    def _receive(self, run: _Run) -> None:
        """Take a piece of what is there: other work of the loop comes between two of them."""
        try:
            count = run.socket.recv_into(run.reader.buffer[:TAKEN_BYTES], 0, socket.MSG_DONTWAIT)
            if count:
                for frame in run.reader.take(count):
                    self._hand_out(run, frame)
                return
        except BlockingIOError:
            return
        except (OSError, BrokenFrame, msgspec.MsgspecError) as error:
            _log.error("What the process for cold messages said cannot be read: %s", error)
        self._let_go(run)

    def _hand_out(self, run: _Run, frame: ColdFrame) -> None:
        said = ANSWERS.decode(frame.head)
        is_answer = not isinstance(said, Progress)
        with self._mutex:
            given = run.waiting.pop(frame.number, None) if is_answer else run.waiting.get(frame.number)
            run.used_s = self._now_s()
            self._failures = 0
        if given is None:
            return
        if isinstance(said, Progress):
            given.heard_s = run.used_s
            given.take(said)
        elif not given.waiting.done():
            # Who was cancelled meanwhile is done.
            given.waiting.set_result((said, frame.body))

    def _look_whether_idle(self, run: _Run) -> None:
        with self._mutex:
            if self._run is not run:
                return
            idle_s = self._now_s() - run.used_s
            if not run.waiting and idle_s >= self._idle_s:
                self._run = None
        if self._run is None:
            self._let_go(run)
        else:
            self._loop.call_later(max(self._idle_s - idle_s, self._idle_s / 10), self._look_whether_idle, run)

    def _let_go(self, run: _Run) -> None:
        if run.is_left:
            return
        run.is_left = True
        self._loop.remove_reader(run.socket)
        # It may take some time to end.
        threading.Thread(target=self._end, args=(run,), name="millstream-cold-process-end", daemon=True).start()

    def _end(self, run: _Run) -> None:
        run.channel.hang_up()
        try:
            code = run.process.wait(END_S)
        except subprocess.TimeoutExpired:
            run.process.kill()
            code = run.process.wait()
        with self._mutex:
            if self._run is run:
                self._run = None
                if not self._is_closed:
                    self._note_failure()
                    _log.error("The process for cold messages ended with %s; the next work starts another.", code)
            waiting = [given.waiting for given in run.waiting.values()]
        run.socket.close()
        self._loop.call_soon_threadsafe(_fail, waiting, f"the process for cold messages ended with {code}")
        run.is_over.set()

    def _note_failure(self) -> None:
        self._not_before_s = self._now_s() + self._restarts.wait_s(self._failures)
        self._failures += 1


def _fail(waiting: Sequence[_Waiting], cause: str) -> None:
    for one in waiting:
        if not one.done():
            one.set_exception(ObjectStoreAway(cause))


def _check(answer: Answer) -> None:
    """Raise the error that the answer tells of."""
    if isinstance(answer, WorkRefused):
        raise answer.error()


def _block_of(answer: Answer, body: bytes | memoryview) -> BlockBytes:
    _check(answer)
    assert isinstance(answer, BlockIsRead)
    view = memoryview(body)
    return view[: answer.raw_bytes], view[answer.raw_bytes :]
