"""Answers before the caller's deadline, for a proxy whose brokers may not answer at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from millstream.model.errors import TimedOut
from millstream.proxy.grpc.call import Call

__all__ = ["MARGIN_S", "in_time"]

MARGIN_S: Final = 0.25
"""Seconds before its deadline at which a call is answered with TIMED_OUT, so that its client hears why."""

_T = TypeVar("_T")


def in_time(handler: Callable[[Call, Any], Awaitable[_T]]) -> Callable[[Call, Any], Awaitable[_T]]:
    """The handler, which raises TimedOut shortly before the call's deadline."""

    async def answer(call: Call, request: Any) -> _T:
        if call.deadline_s is None:
            return await handler(call, request)
        try:
            async with asyncio.timeout(call.deadline_s - MARGIN_S) as limit:
                return await handler(call, request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimedOut(f"No broker answered within {call.deadline_s:.3g} s, the call's deadline.") from None

    return answer
