"""Asking several brokers of which one may hang: what the others say must not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

__all__ = ["gather_until_deadline"]

_T = TypeVar("_T")


async def gather_until_deadline(works: Iterable[Coroutine[Any, Any, _T]], timeout_s: float) -> list[_T]:
    """What the works give that end within `timeout_s`, in their order; the others go on to their end, unheard.

    An error of one that ends in time is raised.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    if not tasks:
        return []
    done, late = await asyncio.wait(tasks, timeout=timeout_s)
    for task in late:
        task.add_done_callback(_consume_error)
    return [task.result() for task in tasks if task in done]


def _consume_error(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
