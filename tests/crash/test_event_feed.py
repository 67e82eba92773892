"""The messages of the job that is killed while it is scaled."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from crash.event_feed import EventFeed
from crash.operator_job import EVENTS, WATERMARK_DELAY_S

from millstream.client.blocking import BlockingClient
from millstream.model.message import Message

QUEUES = 8


class KeptMessages:
    """Takes messages in place of a client."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def queues(self, topic: str) -> Sequence[int]:
        assert topic == EVENTS
        return range(QUEUES)

    def send(self, message: Message) -> None:
        if message.topic == EVENTS:
            self.events.append(json.loads(message.body))

    def send_many(self, messages: Sequence[Message], *, queue: int) -> None:
        for message in messages:
            self.send(message)


def moment_of(event: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(event["ts"])


@pytest.mark.parametrize("count", [1, 19, 20, 21, 39, 40, 55])
def test_the_same_windows_are_over_however_far_closing_events_bring_event_time(count: int) -> None:
    kept = KeptMessages()
    feed = EventFeed(cast("BlockingClient", kept), random.Random(count))
    feed.send(count)
    feed.close_windows()
    windows = feed.expected()["windows"]
    assert sum(row[2] for row in windows.elements()) == count
    closing = kept.events[count:]
    assert len(closing) == QUEUES
    starts = {(moment_of(event) - timedelta(seconds=WATERMARK_DELAY_S)).replace(microsecond=0) for event in closing}
    first = min(starts)
    assert all(start - first < timedelta(seconds=20 - first.second % 20) for start in starts)


def test_event_time_rises_over_closed_windows_and_later_events_are_in_windows_of_their_own() -> None:
    kept = KeptMessages()
    feed = EventFeed(cast("BlockingClient", kept), random.Random(1))
    for _ in range(3):
        feed.send(30)
        feed.close_windows()
    times = [event["ts"] for event in kept.events]
    assert times == sorted(times)
    assert len(set(times)) == len(times) == 3 * (30 + QUEUES)
    assert sum(row[2] for row in feed.expected()["windows"].elements() if row[0] >= 0) == 90


def test_what_was_sent_behind_the_last_closing_is_expected_of_sums_but_of_no_window() -> None:
    feed = EventFeed(cast("BlockingClient", KeptMessages()), random.Random(2))
    feed.send(10)
    wanted = feed.expected()
    assert sum(row[1] for row in wanted["sums"].elements()) == 10
    assert not wanted["windows"]
    assert not wanted["matched"]
