"""Requests that wait for messages: pulls by (topic, queue), pops by (topic, group, queue or all queues).

Readers that pull each see every message, so all of a queue are woken. Members of a group that pop compete, so one is
woken; it passes the word on (`pass_on`) if it left something. A wake-up is a hint: who is woken looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from millstream.model.errors import ConsumeRefused

__all__ = ["EVERY_QUEUE", "MAX_WAITING", "MAX_WAITING_PER_KEY", "MIN_ALARM_S", "LongPolls"]

EVERY_QUEUE = -1
"""Stands for a queue at which all pops of a topic look, whichever queue they want."""

MAX_WAITING = 100_000
"""Requests that wait at one time at most; RocketMQ's limit."""

MAX_WAITING_PER_KEY = 1024
"""Requests that wait for the same thing at most; RocketMQ's limit."""

MIN_ALARM_S = 0.001
"""An alarm never comes sooner: wall clock and loop time may differ by a part of a millisecond."""

_Waiter = asyncio.Future[bool]
_Crowd = dict[_Waiter, None]
"""Waiters in order of arrival; any of them can leave at once."""


@dataclass(slots=True)
class _Group:
    """The waiting pops of one group on one topic, by queue (None: all queues), and the alarms of its queues."""

    crowds: dict[int | None, _Crowd] = field(default_factory=dict)
    alarms: dict[int, asyncio.TimerHandle] = field(default_factory=dict)


class LongPolls:
    """All waiting requests. Every call is from the event loop's thread.

    `per_key` and `total` bound the waits: over them a wait is refused (TOO_MANY_REQUESTS).
    """

    def __init__(self, *, per_key: int = MAX_WAITING_PER_KEY, total: int = MAX_WAITING) -> None:
        self._per_key = per_key
        self._total = total
        self._pulls: dict[tuple[str, int], _Crowd] = {}
        self._pops: dict[str, dict[str, _Group]] = {}
        self._closed = False
        self.waiting = 0
        """Requests that wait now."""

    async def wait_pull(self, topic: str, queue_id: int, timeout_s: float) -> bool:
        """Wait for a message in the queue; False after the timeout."""
        key = (topic, queue_id)
        crowd = self._pulls.setdefault(key, {})
        try:
            return await self._wait(crowd, timeout_s, f"queue {queue_id} of {topic}", _nobody_else)
        finally:
            if not crowd and self._pulls.get(key) is crowd:
                del self._pulls[key]

    async def wait_pop(
        self,
        group: str,
        topic: str,
        queue_id: int | None,
        timeout_s: float,
        alarms: Iterable[tuple[int, float]] = (),
    ) -> bool:
        """Wait for something to pop; False after the timeout. Who is woken and leaves passes the word on.

        `alarms` are queues and the seconds after which something of theirs becomes visible again.
        """
        line = self._pops.setdefault(topic, {}).setdefault(group, _Group())
        crowd = line.crowds.setdefault(queue_id, {})
        for alarm_queue, delay_s in alarms:
            self.alarm(group, topic, alarm_queue, delay_s)

        def pass_on() -> None:
            self.pass_on(group, topic, queue_id)

        try:
            return await self._wait(crowd, timeout_s, f"group {group} on {topic}", pass_on)
        finally:
            self._tidy(group, topic)

    def waiting_pops(self, group: str, topic: str, queue_id: int | None) -> int:
        """How many pops of the group wait for the queue, or (None) for all queues of the topic."""
        line = self._pops.get(topic, {}).get(group)
        return len(line.crowds.get(queue_id, ())) if line is not None else 0

    def has_pops(self, group: str, topic: str) -> bool:
        """Whether a pop of the group waits on the topic."""
        return group in self._pops.get(topic, ())

    def wake(self, queues: Iterable[tuple[str, int]]) -> None:
        """Messages became readable in these (topic, queue)s."""
        for topic, queue_id in queues:
            for waiter in self._pulls.get((topic, queue_id), ()):
                _answer(waiter, True)
            groups = self._pops.get(topic)
            if groups:
                for line in groups.values():
                    _wake_first(line, queue_id)
                    _wake_first(line, None)

    def wake_group(self, group: str, topic: str, queue_id: int) -> None:
        """Something of the queue can be popped by this group; of `EVERY_QUEUE`: by whichever of its pops."""
        line = self._pops.get(topic, {}).get(group)
        if line is not None:
            for queue in (queue_id, None) if queue_id != EVERY_QUEUE else tuple(line.crowds):
                _wake_first(line, queue)

    def wake_everywhere(self, group: str, queue_id: int) -> None:
        """The same on all topics that the group's pops wait on."""
        for topic in [topic for topic, groups in self._pops.items() if group in groups]:
            self.wake_group(group, topic, queue_id)

    def pass_on(self, group: str, topic: str, queue_id: int | None) -> None:
        """Wake the next that waits for the same."""
        line = self._pops.get(topic, {}).get(group)
        if line is not None:
            _wake_first(line, queue_id)

    def end_pulls(self, topic: str, queue_id: int) -> None:
        """End the waits of pulls as if their time were over, as when one of them is to go on elsewhere."""
        for waiter in self._pulls.get((topic, queue_id), ()):
            _answer(waiter, False)

    def wake_pulls(self) -> None:
        """Wake all pulls, as where a replica shows more and does not know of which queues."""
        for crowd in self._pulls.values():
            _wake_all(crowd)

    def wake_topic(self, topic: str) -> None:
        """Wake everybody who waits on the topic, as when it is deleted."""
        for key, crowd in self._pulls.items():
            if key[0] == topic:
                _wake_all(crowd)
        for line in self._pops.get(topic, {}).values():
            for crowd in line.crowds.values():
                _wake_all(crowd)

    def alarm(self, group: str, topic: str, queue_id: int, delay_s: float) -> None:
        """Wake the group in `delay_s` if it still waits then. An earlier alarm of the queue stands."""
        line = self._pops.get(topic, {}).get(group)
        if line is None:
            return
        loop = asyncio.get_running_loop()
        present = line.alarms.get(queue_id)
        if present is not None:
            if present.when() <= loop.time() + delay_s:
                return
            present.cancel()
        line.alarms[queue_id] = loop.call_later(delay_s, self._ring, group, topic, queue_id)

    def close(self) -> None:
        """End all waits as if their time were over, and all later ones at once."""
        self._closed = True
        crowds = [*self._pulls.values()]
        for groups in self._pops.values():
            for line in groups.values():
                crowds.extend(line.crowds.values())
        for crowd in crowds:
            for waiter in crowd:
                _answer(waiter, False)

    def _ring(self, group: str, topic: str, queue_id: int) -> None:
        del self._pops[topic][group].alarms[queue_id]
        self.wake_group(group, topic, queue_id)

    async def _wait(self, crowd: _Crowd, timeout_s: float, place: str, pass_on: Callable[[], None]) -> bool:
        if self._closed:
            return False
        if len(crowd) >= self._per_key or self.waiting >= self._total:
            raise ConsumeRefused(
                "TOO_MANY_REQUESTS",
                f"{len(crowd)} requests wait for {place}, {self.waiting} in all; the limits are {self._per_key} and "
                f"{self._total}.",
            )
        loop = asyncio.get_running_loop()
        waiter: _Waiter = loop.create_future()
        timer = loop.call_later(timeout_s, _answer, waiter, False)
        crowd[waiter] = None
        self.waiting += 1
        try:
            return await waiter
        except asyncio.CancelledError:
            # Woken and cancelled before it could run: the word that it got must not be lost.
            if waiter.done() and not waiter.cancelled() and waiter.result():
                pass_on()
            raise
        finally:
            timer.cancel()
            crowd.pop(waiter, None)
            self.waiting -= 1

    def _tidy(self, group: str, topic: str) -> None:
        groups = self._pops.get(topic, {})
        line = groups.get(group)
        if line is None or any(line.crowds.values()):
            return
        for alarm in line.alarms.values():
            alarm.cancel()
        del groups[group]
        if not groups:
            del self._pops[topic]


def _nobody_else() -> None:
    """Pulls are woken all together: there is nobody to pass the word to."""


def _answer(waiter: _Waiter, woken: bool) -> None:
    if not waiter.done():
        waiter.set_result(woken)


def _wake_first(line: _Group, queue_id: int | None) -> None:
    """Wake the one who waits longest and is not yet woken: it leaves the crowd here, not when it runs."""
    crowd = line.crowds.get(queue_id)
    while crowd:
        waiter = next(iter(crowd))
        del crowd[waiter]
        if not waiter.done():
            waiter.set_result(True)
            return


def _wake_all(crowd: _Crowd) -> None:
    for waiter in crowd:
        _answer(waiter, True)
