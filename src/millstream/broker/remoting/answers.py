"""Answers made of a value that is there, or that comes from another broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from millstream.broker.static_topics.queue_router import Soon
from millstream.protocol.remoting.command import RemotingCommand

__all__ = ["answer_soon"]

_T = TypeVar("_T")


def answer_soon(value: Soon[_T], to_answer: Callable[[_T], RemotingCommand]) -> Soon[RemotingCommand]:
    """The answer made of the value: at once where the value is there, so that no task is needed."""
    if isinstance(value, Awaitable):
        return _answer(value, to_answer)
    return to_answer(value)


async def _answer(value: Awaitable[_T], to_answer: Callable[[_T], RemotingCommand]) -> RemotingCommand:
    return to_answer(await value)
