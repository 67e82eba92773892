"""A role as a child process that is restarted when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from millstream.model.backoff import Backoff
from millstream.model.clock import Clock
from millstream.model.errors import StartRefused
from millstream.store.files import FileLayer

__all__ = [
    "FIRST_DELAY_S",
    "MAX_DELAY_S",
    "READY_TIMEOUT_S",
    "STEADY_S",
    "STOP_TIMEOUT_S",
    "RestartBackoff",
    "SupervisedRole",
]

_log = logging.getLogger(__name__)

READY_TIMEOUT_S: Final = 120.0
"""Seconds that a role gets to become ready: a broker may have a log to recover."""

STOP_TIMEOUT_S: Final = 15.0
"""Seconds that a role gets to stop before it is killed."""

FIRST_DELAY_S: Final = 0.5
"""Seconds before a process that ended is started again; twice as long each time that it ends soon."""

MAX_DELAY_S: Final = 30.0
"""Seconds before a restart at most."""

STEADY_S: Final = 60.0
"""Seconds of running after which the delays start over."""

_TOLD_CHARACTERS = 2_000
_BACKOFF: Final = Backoff(FIRST_DELAY_S, MAX_DELAY_S)


class RestartBackoff:
    """How long to wait before a process that ended is started again: ever longer, until it ran well. Pure."""

    def __init__(self, backoff: Backoff = _BACKOFF) -> None:
        self._backoff = backoff
        self._ends = 0

    def delay_s(self, ran_s: float) -> float:
        """Seconds to wait after it ran for `ran_s` and ended."""
        if ran_s >= STEADY_S:
            self._ends = 0
        self._ends += 1
        return self._backoff.wait_s(self._ends - 1)


class SupervisedRole:
    """`millstream start ROLE` with `options`, called `name`; what it says about itself goes to the file `log`.

    `port` is the setting of its port: a restart keeps the port that the first start found.
    """

    def __init__(
        self, role: str, name: str, options: Sequence[str], log: Path, clock: Clock, *, port: str = "port"
    ) -> None:
        self.name = name
        self.addresses: dict[str, str] = {}
        """`host:port` of each of its ports, by name; empty until `start`."""
        self.restarts = 0
        self._role = role
        self._options = list(options)
        self._log_path = log
        self._clock = clock
        self._port = port
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The present process; None between two."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def start(self) -> None:
        """Start it and wait until it is ready; from then on it is started again when it ends.

        Raises CHILD_PROCESS_FAILED, with what the process said.
        """
        started_s = self._clock.monotonic_s()
        await self._start_once()
        own = self.addresses.get(self._role, self.addresses.get("grpc", ""))
        # Clients and others know its address; a later `--set` of a name goes before an earlier one.
        self._options += ["--set", f"{self._port}={own.rpartition(':')[2]}"]
        self._task = asyncio.create_task(self._watch(started_s), name=f"supervise-{self.name}")

    async def close(self) -> None:
        """Stop it for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._stop()

    async def _watch(self, started_s: float) -> None:
        backoff = RestartBackoff()
        while True:
            code = None if self._process is None else await self._process.wait()
            delay_s = backoff.delay_s(self._clock.monotonic_s() - started_s)
            _log.warning("%s ended with %s; it is started again in %.2g s.", self.name, code, delay_s)
            await asyncio.sleep(delay_s)
            started_s = self._clock.monotonic_s()
            try:
                await self._start_once()
            except StartRefused as error:
                _log.warning("%s", error.message)
                continue
            self.restarts += 1
            _log.warning("%s runs again, as process %s.", self.name, self.pid)

    async def _start_once(self) -> None:
        try:
            await self._run()
        except TimeoutError:
            words = f"{self.name} was not ready within {READY_TIMEOUT_S:g} s."
            raise StartRefused("CHILD_PROCESS_FAILED", words) from None
        except OSError as error:
            raise StartRefused("CHILD_PROCESS_FAILED", f"{self.name} cannot be started: {error}.") from None

    async def _run(self) -> None:
        files = FileLayer()
        files.make_directory(self._log_path.parent)
        files.close(files.open(self._log_path, create=True))
        command = [sys.executable, "-m", "millstream", "start", self._role, "--with-parent", "-o", "json"]
        with self._log_path.open("ab") as log:
            log_start = log.tell()
            # A session of its own: Ctrl-C of the terminal is for the supervisor, which stops all in order.
            self._process = await asyncio.create_subprocess_exec(
                *command,
                *self._options,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._until_ready(log_start)
        except BaseException:
            await self._stop()
            raise

    async def _until_ready(self, log_start: int) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        first = await self._process.stdout.readline()
        ready = await self._process.stdout.readline()
        if not ready.startswith(b"ready"):
            await self._process.wait()
            last_output = self._log_path.read_bytes()[log_start:].decode(errors="replace").strip()[-_TOLD_CHARACTERS:]
            words = last_output.removeprefix("error: ") or f"it ended with {self._process.returncode} and said nothing."
            raise StartRefused("CHILD_PROCESS_FAILED", f"{self.name} did not start: {words}", remedy="")
        self.addresses = {name: text for name, text in json.loads(first).items() if name != "directory"}

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.communicate()
        except TimeoutError:
            _log.warning("%s did not stop within %g s and is killed.", self.name, STOP_TIMEOUT_S)
            process.kill()
            await process.communicate()
