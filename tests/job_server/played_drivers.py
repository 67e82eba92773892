"""Drivers that are no processes: they do what they are told at once, and a test says what they tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millstream.job_server.driver import DriverOptions
from millstream.job_server.driver_messages import Event, Order, SaveJob, Start, Started, Stop, Stopped

__all__ = ["PlayedDriver", "PlayedDrivers"]


class PlayedDriver:
    """One of them."""

    def __init__(self, options: DriverOptions, tell: Callable[[Event], None], end: Callable[[int], None]) -> None:
        self.options = options
        self.starts: list[list[str]] = []
        self.savepoints: list[SaveJob] = []
        self.tell_event = tell
        self.is_over = False
        self._end = end

    async def start(self) -> None:
        """Nothing is to be started."""

    def tell(self, order: Order) -> None:
        """Do it at once; savepoints are left to the test."""
        if isinstance(order, SaveJob):
            self.savepoints.append(order)
        elif isinstance(order, Start):
            self.starts.append([one.name for one in order.jobs])
            for one in order.jobs:
                self.tell_event(Started(one.name, ["shared"]))
        elif isinstance(order, Stop):
            for name in order.names:
                self.tell_event(Stopped(name))

    def end(self) -> None:
        """End at once."""
        self.die(0)

    def kill(self) -> None:
        """End as kill -9 does."""
        self.die(-9)

    def die(self, code: int) -> None:
        """End with that code, once."""
        if not self.is_over:
            self.is_over = True
            self._end(code)

    async def wait(self) -> None:
        """It has ended by now."""


class PlayedDrivers:
    """Makes them, in place of `DriverProcess`."""

    def __init__(self) -> None:
        self.made: list[PlayedDriver] = []

    def __call__(
        self,
        options: DriverOptions,
        _lock: Path,
        log: Path,
        on_event: Callable[[Event], None],
        on_end: Callable[[int], None],
    ) -> PlayedDriver:
        """The next one."""
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("line 1\nline 2\n")
        self.made.append(PlayedDriver(options, on_event, on_end))
        return self.made[-1]

    @property
    def running(self) -> list[PlayedDriver]:
        """Those that have not ended."""
        return [one for one in self.made if not one.is_over]
