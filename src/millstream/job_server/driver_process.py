"""A driver process as its server sees it: start it, send commands, read events, stop it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from millstream.job_server.bounded_log import BoundedLog
from millstream.job_server.driver import STOP_S, DriverOptions
from millstream.job_server.driver_messages import EVENTS, MAX_LINE_BYTES, Event, Order, encode_line
from millstream.model.errors import StartRefused

__all__ = ["MAX_SILENCE_S", "DriverProcess", "end_left_drivers"]

_log = logging.getLogger(__name__)

MAX_SILENCE_S: Final = 120.0
"""Seconds without a word of a driver that runs, which tells its progress each second; then it is killed."""

MAX_START_S: Final = 300.0
"""Seconds that Spark gets to start in a driver."""

_MARGIN_S: Final = 5.0
_LOG_END_S: Final = 1.0
_LOG_BYTES: Final = 64 * 1024


class DriverProcess:
    """A driver; `on_event` hears what it says, `on_end` its exit code, once. Calls come from one event loop."""

    def __init__(
        self,
        options: DriverOptions,
        lock: Path,
        log: Path,
        on_event: Callable[[Event], None],
        on_end: Callable[[int], None],
    ) -> None:
        self._options = options
        self._lock_path = lock
        self._log_path = log
        self._on_event = on_event
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._heard_s = time.monotonic()
        self._silence_s = MAX_START_S

    @property
    def pid(self) -> int | None:
        """The number of the process; None before its start."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process; returns before Spark has started. Raises StartRefused CHILD_PROCESS_FAILED."""
        try:
            log, lock = self._make_places()
        except OSError as error:
            raise StartRefused("CHILD_PROCESS_FAILED", f"A driver cannot be started: {error}.") from None
        options = msgspec.json.encode(msgspec.structs.replace(self._options, lock=lock)).decode()
        try:
            # A session of its own: Ctrl-C of the terminal is for the server, which ends its drivers in order.
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "millstream.job_server.driver", options),
                pass_fds=(lock,),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                limit=MAX_LINE_BYTES,
            )
        except OSError as error:
            log.close()
            raise StartRefused("CHILD_PROCESS_FAILED", f"A driver cannot be started: {error}.") from None
        finally:
            os.close(lock)
        self._heard_s = time.monotonic()
        self._tasks = [
            asyncio.create_task(self._keep_log(self._process, log), name="driver-log"),
            asyncio.create_task(self._listen(self._process), name="driver"),
            asyncio.create_task(self._watch_silence(self._process), name="driver-silence"),
        ]

    def tell(self, order: Order) -> None:
        """Send an order; one to a driver that has ended is lost, as its end is told."""
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(encode_line(order))

    def end(self) -> None:
        """Have it stop its jobs and end; it is killed where it takes too long. Twice is no error."""
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            return
        process.stdin.close()
        self._heard_s, self._silence_s = time.monotonic(), STOP_S + _MARGIN_S

    def kill(self) -> None:
        """End it at once, with all that it has started."""
        if self._process is not None:
            _kill_group(self._process.pid)

    async def wait(self) -> None:
        """Return when it has ended and that was told."""
        if self._process is None:
            return
        log, listening, _ = self._tasks
        await asyncio.gather(listening, return_exceptions=True)
        # Workers that outlive the driver for a moment hold the other end of its log.
        await asyncio.wait({log}, timeout=_LOG_END_S)
        log.cancel()
        self._process._transport.close()  # type: ignore[attr-defined]

    def _make_places(self) -> tuple[BoundedLog, int]:
        """The log, and the locked file that the driver is to have."""
        Path(self._options.work).mkdir(parents=True, exist_ok=True)
        self._lock_path.parent.mkdir(parents=True, exist_ok=True)
        log = BoundedLog(self._log_path)
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return log, lock

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._heard_s = time.monotonic()
            if process.stdin is not None and not process.stdin.is_closing():
                self._silence_s = MAX_SILENCE_S
            try:
                event = EVENTS.decode(line)
            except msgspec.MsgspecError as error:
                _log.error("A driver says what is no event (%s): %r", error, line[:200])
                continue
            self._on_event(event)
        code = await process.wait()
        # What the driver started may outlive it for a moment, and would write to the checkpoints of the next one.
        _kill_group(process.pid)
        self._tasks[2].cancel()
        self._on_end(code)

    async def _keep_log(self, process: asyncio.subprocess.Process, log: BoundedLog) -> None:
        assert process.stderr is not None
        with contextlib.closing(log):
            while data := await process.stderr.read(_LOG_BYTES):
                log.write(data)

    async def _watch_silence(self, process: asyncio.subprocess.Process) -> None:
        while True:
            left_s = self._heard_s + self._silence_s - time.monotonic()
            if left_s <= 0:
                _log.warning("A driver has been silent for %.0f s and is killed.", self._silence_s)
                _kill_group(process.pid)
                return
            await asyncio.sleep(min(left_s, 1.0))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def end_left_drivers(locks: Sequence[Path]) -> None:
    """Return when none of the drivers that an earlier server of this directory has left holds its lock any more.

    They end by themselves when their server does; one that has not after `STOP_S` is killed.
    """
    deadline_s = time.monotonic() + STOP_S + _MARGIN_S
    for path in locks:
        with path.open("rb") as lock:
            while not _is_free(lock.fileno()):
                if time.monotonic() > deadline_s:
                    pid = lock.read(20).decode("ascii", "replace").strip()
                    lock.seek(0)
                    if pid.isdecimal():
                        _kill_group(int(pid))
                time.sleep(0.1)
        path.unlink(missing_ok=True)


def _is_free(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
