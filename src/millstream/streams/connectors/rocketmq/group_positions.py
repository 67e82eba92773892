"""Commits the positions of completed micro-batches as consumer group offsets in the broker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from millstream.model.errors import ConnectionFailed, Refused
from millstream.streams.connectors.rocketmq.settings import SourceSettings
from millstream.streams.spark.source.position import Position
from millstream.streams.spark.source.topic_log import TopicLog

__all__ = ["GroupPositions", "JobGroupPosition"]


class JobGroupPosition:
    """The group of one table. A broker that cannot be told now hinders nothing: the checkpoint is the truth."""

    def __init__(self, settings: SourceSettings, open_log: Callable[[], TopicLog]) -> None:
        self._settings = settings
        self._open_log = open_log
        self._log: TopicLog | None = None
        self._done: dict[str, int] = {}
        self._committed: dict[str, int] = {}

    def tell(self, done: Position) -> None:
        """Commit the offsets of `done` that the broker does not know yet."""
        self._done = dict(done.queues)
        self.tell_rest()

    def tell_rest(self) -> None:
        """Try once more what could not be committed."""
        news = {queue: offset for queue, offset in self._done.items() if self._committed.get(queue) != offset}
        if not news:
            return
        with contextlib.suppress(ConnectionFailed, Refused):
            if self._log is None:
                self._log = self._open_log()
            self._log.show_progress(self._settings.group, self._settings.topic, news)
            self._committed.update(news)

    def close(self) -> None:
        """End the connection."""
        if self._log is not None:
            self._log.close()
            self._log = None


class GroupPositions:
    """Those of one pipeline, by the names of its tables."""

    def __init__(self, groups: Mapping[str, JobGroupPosition]) -> None:
        self._groups = dict(groups)

    def tell(self, done: Mapping[str, Position]) -> None:
        """Commit where the micro-batches that are done have come to, by table."""
        for name, group in self._groups.items():
            if name in done:
                group.tell(done[name])

    def close(self) -> None:
        """Commit what is left, and end the connections."""
        for group in self._groups.values():
            group.tell_rest()
            group.close()
