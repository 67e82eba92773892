"""An event loop whose time moves only when nothing is left to do, so that seconds of a simulation take no time."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable
from typing import Any

__all__ = ["VirtualClock", "VirtualLoop"]


class _IdleSelector(selectors.SelectSelector):
    """Does not wait: the time that it should wait for is what the loop's clock moves on by."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Work for a thread is done in the loop, at the start or the end of a virtual time of up to `slowest_call_s`."""

    def __init__(self, choose: random.Random, slowest_call_s: float) -> None:
        self._idle = _IdleSelector()
        super().__init__(self._idle)
        self._choose = choose
        self._slowest_call_s = slowest_call_s

    def time(self) -> float:
        return self._idle.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        answer: asyncio.Future[Any] = self.create_future()
        takes_s = self._choose.uniform(0, self._slowest_call_s)

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:  # noqa: BLE001 - it is the answer of the one who waits
                self.call_later(takes_s - delay_s, self._refuse, answer, error)
            else:
                self.call_later(takes_s - delay_s, self._resolve, answer, result)

        delay_s = self._choose.choice((0.0, takes_s))
        self.call_later(delay_s, work)
        return answer

    @staticmethod
    def _resolve(answer: asyncio.Future[Any], result: object) -> None:
        if not answer.done():
            answer.set_result(result)

    @staticmethod
    def _refuse(answer: asyncio.Future[Any], error: BaseException) -> None:
        if not answer.done():
            answer.set_exception(error)


class VirtualClock:
    """The product's clock on the loop's time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        return self._loop.time()
