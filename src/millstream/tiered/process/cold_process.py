"""Cold work in a process of its own, as its broker sees it: started when there is work, ended when there is none.

Whatever takes the processor for long holds the interpreter, and each call of an event loop that gives it up waits some
milliseconds to have it back. So a broker's own threads only wait here, for bytes that are checked already.
"""

from __future__ import annotations

import logging
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec

from millstream.model.backoff import Backoff
from millstream.store.log.log_walk import LogWalk
from millstream.tiered.chunk import BlockInfo
from millstream.tiered.cold_map import ColdObject, ColdStretch
from millstream.tiered.cold_work import BlockBytes, GatheredPart, StretchName
from millstream.tiered.objects import ObjectStoreAway
from millstream.tiered.places import ObjectPlace
from millstream.tiered.process.channel import Channel
from millstream.tiered.process.frames import BrokenFrame
from millstream.tiered.process.orders import (
    ANSWERS,
    Answer,
    BlockIsRead,
    FindRecord,
    GatheredLog,
    GatherLog,
    ObjectsArePut,
    Order,
    PutObjects,
    ReadBlock,
    RecordIsFound,
    WorkRefused,
    encode_head,
)

__all__ = ["ColdProcess"]

IDLE_S: Final = 60.0
"""Seconds without work after which the process ends, and its memory with it."""

MAX_ORDERS: Final = 32
"""Orders under way at one time; those that come later wait."""

MAX_READ_S: Final = 120.0
"""Seconds that the process takes to read at most; then it is killed, and the read is tried again later."""

MAX_UPLOAD_S: Final = 900.0
"""The same of each half of an upload."""

END_S: Final = 5.0
"""Seconds in which a process that is told to end does so, before it is killed."""

_RESTARTS: Final = Backoff(0.2, 30.0)

_log = logging.getLogger(__name__)

_Reply = tuple[Answer, bytes]


class _Run:
    """One process, from its start to its end."""

    def __init__(self, place: ObjectPlace) -> None:
        own, others = socket.socketpair()
        with others:
            # A session of its own: Ctrl-C of the terminal is for the broker.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "millstream.tiered.process.worker", msgspec.json.encode(place).decode()],
                stdin=others.fileno(), stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.channel = Channel(own)
        self.waiting: dict[int, Future[_Reply]] = {}
        self.used_s = 0.0
        self.listener = threading.Thread()


class ColdProcess:
    """See `ColdWork`. A process that ends before its time fails what it had under way as a store that does not answer;
    the next one is started after a wait that grows from one such end to the next."""

    def __init__(
        self,
        place: ObjectPlace,
        *,
        idle_s: float = IDLE_S,
        restarts: Backoff | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.starts = 0
        """See `ColdWork`."""
        self._place = place
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

    def read_block(self, key: str, info: BlockInfo) -> BlockBytes:
        """See `ColdWork`."""
        answer, body = self._order(ReadBlock(key, info), MAX_READ_S)
        assert isinstance(answer, BlockIsRead)
        view = memoryview(body)
        return view[: answer.raw_bytes], view[answer.raw_bytes :]

    def find_record(self, key: str, infos: Sequence[BlockInfo], log_offset: int) -> bytes | None:
        """See `ColdWork`."""
        answer, body = self._order(FindRecord(key, tuple(infos), log_offset), MAX_READ_S)
        assert isinstance(answer, RecordIsFound)
        return body or None

    def gather(self, walk: LogWalk, first_of: Mapping[str, int], max_bytes: int) -> GatheredPart:
        """See `ColdWork`."""
        answer, _ = self._order(GatherLog(walk.files(max_bytes), dict(first_of), max_bytes), MAX_UPLOAD_S)
        assert isinstance(answer, GatheredLog)
        return answer.gathered

    def put(self, name: StretchName, row: ColdStretch, class_of: Mapping[str, int]) -> tuple[ColdObject, ...]:
        """See `ColdWork`."""
        answer, _ = self._order(PutObjects(name, row, dict(class_of)), MAX_UPLOAD_S)
        assert isinstance(answer, ObjectsArePut)
        return answer.objects

    def close(self) -> None:
        """See `ColdWork`. What is under way fails."""
        with self._mutex:
            self._is_closed = True
            run = self._run
        if run is not None:
            run.channel.hang_up()
            run.listener.join()

    def _order(self, order: Order, max_s: float) -> _Reply:
        with self._orders:
            head = encode_head(order)
            with self._mutex:
                run = self._run or self._start()
                self._number += 1
                number = self._number & 0xFFFFFFFF
                future = run.waiting[number] = Future()
            try:
                run.channel.send(number, head)
            except OSError:
                # It has ended, as the thread that listens finds as well.
                run.channel.hang_up()
            try:
                answer, body = future.result(max_s)
            except TimeoutError:
                run.process.kill()
                raise ObjectStoreAway(f"the process for cold messages was killed: no answer in {max_s:.0f} s") from None
        if isinstance(answer, WorkRefused):
            raise answer.error()
        return answer, body

    def _start(self) -> _Run:
        if self._is_closed:
            raise ObjectStoreAway("the broker is closing")
        wait_s = self._not_before_s - self._now_s()
        if wait_s > 0:
            raise ObjectStoreAway(f"the process for cold messages ended and is started again in {wait_s:.1f} s")
        try:
            run = _Run(self._place)
        except OSError as error:
            self._note_failure()
            raise ObjectStoreAway(f"the process for cold messages does not start: {error}") from error
        self.starts += 1
        self._run = run
        run.used_s = self._now_s()
        run.listener = threading.Thread(target=self._listen, args=(run,), name="millstream-cold-process", daemon=True)
        run.listener.start()
        return run

    def _listen(self, run: _Run) -> None:
        """Hand out answers until the process ends, or let it end when it is idle."""
        try:
            while self._wait(run):
                frame = run.channel.receive()
                if frame is None:
                    break
                answer = ANSWERS.decode(frame.head)
                with self._mutex:
                    future = run.waiting.pop(frame.number, None)
                    run.used_s = self._now_s()
                    self._failures = 0
                if future is not None:
                    future.set_result((answer, frame.body))
        except (OSError, BrokenFrame, msgspec.MsgspecError) as error:
            _log.error("What the process for cold messages said cannot be read: %s", error)
        finally:
            self._end(run)

    def _wait(self, run: _Run) -> bool:
        """Wait for an answer; False where nobody wants one for so long that the process is to end."""
        poll = select.poll()
        poll.register(run.channel, select.POLLIN)
        while not poll.poll(self._idle_s * 1000):
            with self._mutex:
                if not run.waiting and self._now_s() - run.used_s >= self._idle_s:
                    self._run = None
                    return False
        return True

    def _end(self, run: _Run) -> None:
        run.channel.hang_up()
        try:
            code = run.process.wait(END_S)
        except subprocess.TimeoutExpired:
            run.process.kill()
            code = run.process.wait()
        with self._mutex:
            is_early = self._run is run and not self._is_closed
            if self._run is run:
                self._run = None
            if is_early:
                self._note_failure()
            waiting = list(run.waiting.values())
            run.waiting.clear()
        run.channel.close()
        if is_early:
            _log.error("The process for cold messages ended with %s; it is started again when it is wanted.", code)
        for future in waiting:
            future.set_exception(ObjectStoreAway(f"the process for cold messages ended with {code}"))

    def _note_failure(self) -> None:
        self._not_before_s = self._now_s() + self._restarts.wait_s(self._failures)
        self._failures += 1
