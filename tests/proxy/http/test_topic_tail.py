"""The window over a topic's newest messages that all of its streams share."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from millstream.model.message import Address, StoredMessage
from millstream.proxy.feed import FeedListener, FeedPlace, Following, TopicFeed
from millstream.proxy.http import topic_tail
from millstream.proxy.http.topic_tail import TailReader, TopicTail, TopicTails

KEY = ("a", 0)
HERE = Address("127.0.0.1", 10911)


class Feed:
    """A feed that a test speaks for; one queue, which is at 10."""

    def __init__(self) -> None:
        self.follows = 0
        self.ends = 0
        self.listener: Any = None

    async def follow(self, topic: str, listener: FeedListener, _wants_body: object = None) -> Following:
        self.follows += 1
        self.listener = listener
        await asyncio.sleep(0)
        return Following({KEY: 10}, self._end)

    def _end(self) -> None:
        self.ends += 1

    def bring(self, *offsets: int, size: int = 1, key: tuple[str, int] = KEY) -> None:
        messages = [message(offset, size, key[1]) for offset in offsets]
        self.listener.deliver("orders", messages, FeedPlace(key, offsets[-1] + 1))


def message(offset: int, size: int = 1, queue_id: int = 0) -> StoredMessage:
    return StoredMessage(
        topic="orders",
        queue_id=queue_id,
        queue_offset=offset,
        log_offset=offset,
        body=b"x" * size,
        properties={},
        born_timestamp_ms=0,
        born_host=HERE,
        store_timestamp_ms=0,
        store_host=HERE,
        system_flag=0,
    )


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
async def tails(feed: Feed) -> TopicTails:
    return TopicTails(cast("TopicFeed", feed))


async def begun(tails: TopicTails) -> TailReader:
    reader = await tails.join("orders")
    reader.restart()
    return reader


def offsets(reader: TailReader) -> list[int]:
    found = []
    while not reader.is_behind and (entry := reader.next()) is not None:
        found.append(entry.message.queue_offset)
    return found


async def test_a_topic_is_followed_once_for_all_its_readers_and_no_longer_than_they_are_there(
    tails: TopicTails, feed: Feed
) -> None:
    readers = await asyncio.gather(*[begun(tails) for _ in range(5)])
    feed.bring(10, 11)
    assert [offsets(reader) for reader in readers] == [[10, 11]] * 5
    for reader in readers:
        assert feed.ends == 0
        tails.leave("orders", reader)
    assert (feed.follows, feed.ends, tails.size_bytes) == (1, 1, 0)


async def test_what_all_have_read_is_not_kept(tails: TopicTails, feed: Feed) -> None:
    one, other = await begun(tails), await begun(tails)
    feed.bring(10)
    assert offsets(one) == offsets(other) == [10]
    assert not await one.wait(0)
    assert tails.size_bytes > 0
    assert not await other.wait(0)
    assert tails.size_bytes == 0
    feed.bring(11)
    assert await one.wait(60)
    assert offsets(one) == [11]


async def test_who_reads_too_slowly_is_told_and_goes_on_with_what_comes(
    tails: TopicTails, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_tail, "MAX_TAIL_BYTES", 4096)
    slow, quick = await begun(tails), await begun(tails)
    for offset in range(10, 30):
        feed.bring(offset, size=1000)
        assert offsets(quick) == [offset]
        assert tails.size_bytes <= 4096
    assert slow.is_behind
    [(queue, end)] = slow.restart().values()
    assert (queue.key, end) == (KEY, 30)
    feed.bring(30)
    assert offsets(slow) == [30]


async def test_the_text_of_an_event_is_made_once_and_counts(
    tails: TopicTails, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = [await begun(tails) for _ in range(3)]
    feed.bring(10, size=1000)
    before = tails.size_bytes
    texts = {id(reader.encode(entry)) for reader in readers if (entry := reader.next()) is not None}
    assert len(texts) == 1
    assert tails.size_bytes > before + 1000


async def test_what_the_feed_passes_over_is_read_from_the_log(tails: TopicTails, feed: Feed) -> None:
    reader = await begun(tails)
    feed.bring(10)
    assert offsets(reader) == [10]
    feed.listener.note_gap("orders", 89, FeedPlace(KEY, 100))
    assert reader.is_behind
    [(_, end)] = reader.restart().values()
    assert end == 100
    feed.bring(100)
    assert offsets(reader) == [100]


async def test_damage_behind_which_the_feed_has_come_already_makes_nobody_read_again(
    tails: TopicTails, feed: Feed
) -> None:
    reader = await begun(tails)
    feed.bring(10, 12)
    feed.listener.note_gap("orders", 1, FeedPlace(KEY, 13))
    assert offsets(reader) == [10, 12]


async def test_a_queue_that_is_made_anew_is_another_one(tails: TopicTails, feed: Feed) -> None:
    reader = await begun(tails)
    feed.bring(10)
    old = reader.next()
    feed.bring(0)
    new = reader.next()
    assert old is not None
    assert new is not None
    assert new.queue is not old.queue
    assert (new.queue.key, new.queue.begin) == (KEY, 0)


async def test_a_reader_that_could_not_follow_leaves_nothing_behind(
    tails: TopicTails, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(topic: str, listener: TopicTail, _wants_body: object = None) -> Following:
        raise KeyError(topic)

    monkeypatch.setattr(feed, "follow", fail)
    with pytest.raises(KeyError):
        await tails.join("orders")
    monkeypatch.undo()
    reader = await begun(tails)
    feed.bring(10)
    assert offsets(reader) == [10]
    tails.leave("orders", reader)
    assert feed.ends == 1


def test_an_event_is_one_line_of_data() -> None:
    properties = {"CE_specversion": "1.0", "CE_id": "1", "CE_source": "/s", "CE_type": "t"}
    properties["CE_datacontenttype"] = "application/json"
    data = topic_tail.encode_data(replace(message(0), body=b'{\r\n"a": 1}', properties=properties))
    assert data.startswith(b"data: {")
    assert data.endswith(b"}\n\n")
    assert data.count(b"\n") == 2
