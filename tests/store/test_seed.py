"""A store that begins where another one's log does has the same queues from there on, and gives no offset twice."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from store_samples import SMALL, bodies, pending

from millstream.model.clock import ManualClock
from millstream.store.consume_queue import ConsumeQueue
from millstream.store.message_store import MessageStore
from millstream.store.retention import RetentionPolicy
from millstream.store.seed import seed_store

REPLICATED = replace(SMALL, replicated=True)


def test_a_seeded_store_follows_a_log_whose_beginning_is_gone(tmp_path: Path) -> None:
    clock = ManualClock()
    options = replace(SMALL, retention=RetentionPolicy(keep_ms=1000))
    with closing(MessageStore.open(tmp_path / "source", options, clock=clock)) as source:
        source.put([pending(b"gone", topic="quiet")])
        for number in range(30):
            source.put([pending(b"%d" % number * 60)])
        source.write_checkpoint()
        clock.advance_ms(10_000_000)
        source.retain()
        for number in range(30, 40):
            source.put([pending(b"%d" % number * 60)])
        assert source.log_start > 0
        seed_store(tmp_path / "replica", source.make_seed(), SMALL.segment_bytes)
        for _ in range(2):
            with closing(MessageStore.open(tmp_path / "replica", REPLICATED)) as replica:
                while (chunk := source.read_chunk(replica.written_log_offset, 700)).records:
                    replica.append_chunk(chunk.log_offset, bytes(chunk.records))
                replica.confirm(source.written_log_offset)
                assert replica.log_start == source.log_start
                for topic in ("orders", "quiet"):
                    assert bodies(replica, topic) == bodies(source, topic), topic
                    assert replica.max_offset(topic, 0) == source.max_offset(topic, 0), topic
        assert source.max_offset("quiet", 0) == 1


def test_a_seed_at_the_end_has_the_ends_of_all_queues_without_a_look_at_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(MessageStore.open(tmp_path, REPLICATED)) as store:
        for number in range(30):
            store.put([pending(b"%d" % number * 60, topic=f"topic-{number % 7}")])
            if number == 20:
                store.confirm(store.written_log_offset)
        searched = {
            queue.topic: {queue.queue_id: (queue.first_offset_in_log(store.visible_log_offset),) * 2}
            for queue in store._queues
        }
        monkeypatch.setattr(ConsumeQueue, "first_offset_in_log", None)
        checkpoint = store.make_seed(at_end=True).checkpoint
        assert checkpoint.queues == searched == {f"topic-{number}": {0: (3, 3)} for number in range(7)}
        assert checkpoint.log_offset == store.visible_log_offset < store.written_log_offset
