"""The messages of the job that is killed while it is scaled: they are sent, and what is to become of them is known."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Final

from crash.operator_job import EVENTS, KEYS, WATERMARK_DELAY_S, WINDOW_S, Event, expected_rows, name_message
from crash.sink_databases import Rows
from millstream.client.blocking import BlockingClient

__all__ = ["EventFeed"]

_LONG_AGO: Final = datetime(1970, 1, 1)
_NAMED_SHARE: Final = 0.7
"""Of the events; the others find nothing to join with."""

_CLOSING_KEY: Final = -1
"""That of the events which only close windows."""


class EventFeed:
    """Sends events of rising event time, one after the other: so none is late, whatever queue it comes to."""

    def __init__(self, client: BlockingClient, chance: random.Random) -> None:
        self._client = client
        self._chance = chance
        self._events: list[Event] = []
        self._named: list[int] = []
        self._next_id = 0
        self._until = _LONG_AGO

    def send(self, count: int) -> None:
        """So many events, and what most of them are joined with."""
        for id in range(self._next_id, self._next_id + count):
            event = Event(id, self._chance.randrange(KEYS), self._chance.randrange(100))
            self._events.append(event)
            self._client.send(event.message())
            if self._chance.random() < _NAMED_SHARE:
                self._named.append(id)
                self._client.send(name_message(id))
        self._next_id += count

    def close_windows(self) -> None:
        """An event of a key of its own for each queue, so late that all windows before it are over.

        The first of them is in the middle of a window, and all in the same one: however far event time comes by them,
        the same windows are over.
        """
        queues = list(self._client.queues(EVENTS))
        window = self._next_id // WINDOW_S + 2
        first = window * WINDOW_S + WATERMARK_DELAY_S + 1
        for number, queue in enumerate(queues):
            event = Event(first + number, _CLOSING_KEY, 0)
            self._events.append(event)
            self._client.send_many([event.message()], queue=queue)
        self._until = Event(first, _CLOSING_KEY, 0).moment - timedelta(seconds=WATERMARK_DELAY_S)
        self._next_id = (window + 1) * WINDOW_S

    def expected(self) -> dict[str, Rows]:
        """What the job makes of all that was sent, by the name of the rows.

        Windows and matches are those up to the last `close_windows`.
        """
        return expected_rows(self._events, self._named, until=self._until)
