"""Answers pulls that are alike, many at a time: what holds for all of them is looked at once, and an answer is made of
its numbers and of the records as they stand in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.broker.queues.pull_reader import PullReader
from millstream.model.errors import MillstreamError
from millstream.protocol.remoting.messages.pulls import pull_head
from millstream.protocol.remoting.pull_shape import ShapedPull

__all__ = ["PullRunAnswers"]


class PullRunAnswers:
    """Answers the pulls of one run in the turn in which it came. `max_messages` and `max_bytes` are of each.

    `suggest` says where a client is to send its next pull, from the queue and the offset behind what it got; `commit`
    keeps the offset that a pull brings. None where there is nothing to ask or to keep.
    """

    __slots__ = ("_commit", "_max_bytes", "_max_messages", "_reader", "_suggest")

    def __init__(
        self,
        reader: PullReader,
        max_messages: int,
        max_bytes: int,
        suggest: Callable[[int, int], int] | None,
        commit: Callable[[int, int], None] | None,
    ) -> None:
        self._reader = reader
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._suggest = suggest
        self._commit = commit

    def answer(self, requests: list[Any], start: int, frames: list[bytes | memoryview], max_bytes: int) -> int:
        """As `RunAnswers.answer`."""
        reader, suggest, commit = self._reader, self._suggest, self._commit
        left_bytes, position = max_bytes, start
        while position < len(requests) and left_bytes > 0:
            pull: ShapedPull = requests[position]
            try:
                if commit is not None:
                    commit(pull.queue_id, pull.commit_offset)
                data = reader.read(pull.queue_id, pull.queue_offset, self._max_messages, self._max_bytes)
            except MillstreamError:
                # The general way says what is wrong, to this one alone.
                data = None
            if data is None:
                break
            following = reader.next_offset
            suggested = 0 if suggest is None else suggest(pull.queue_id, following)
            frames.append(pull_head(pull.opaque, suggested, following, reader.min_offset, reader.max_offset, len(data)))
            frames.append(data)
            left_bytes -= len(data)
            position += 1
        return position - start
