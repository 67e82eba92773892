"""A pull that needs no waiting is answered in its own turn, and reads records together."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker_bench import Bench
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import scaled
from millstream.model.filter import parse_tag_filter
from millstream.model.operations import PullRequest
from millstream.model.topic import TopicConfig
from millstream.protocol.record import decode_record, iterate_records
from millstream.store.queue_reader import QueueReader


def _none(*_: object) -> None:
    return None


async def test_records_read_together_are_those_read_one_by_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        await bench.send(f"{number}" * (number % 5 + 1), TAGS="red" if number % 3 else "blue")

    @settings(max_examples=scaled(200), deadline=None)
    @given(st.integers(-1, 41), st.integers(-1, 50), st.integers(0, 6000), st.sampled_from(("*", "red")))
    def both(queue_offset: int, max_messages: int, max_bytes: int, expression: str) -> None:
        wanted = parse_tag_filter(expression)
        request = PullRequest("g", "t", 0, queue_offset, max_messages, max_bytes, wanted)
        together = bench.broker.queues.pull_now(request)
        with monkeypatch.context() as patch:
            patch.setattr(QueueReader, "read_together", _none)
            patch.setattr(QueueReader, "read_run", _none)
            patch.setattr(QueueReader, "read_all", _none)
            one_by_one = bench.broker.queues.pull_now(request)
        assert together is not None
        assert one_by_one is not None
        assert together.message_count in (0, len(one_by_one.records))
        records = b"".join(together.records)
        assert records == b"".join(one_by_one.records)
        together.records, together.message_count = one_by_one.records, 0
        assert together == one_by_one

    both()


async def test_a_reader_that_may_wait_gets_each_record_by_itself_and_both_ways_count_the_same(bench: Bench) -> None:
    await bench.send(*"abcde")
    request = PullRequest("g", "t", 0, 1, max_messages=3)
    apart = await bench.broker.queues.pull(request)
    outgoing = bench.broker.delivery.statistics.outgoing["g", "t"]
    counted = outgoing.messages, outgoing.size_bytes
    together = bench.broker.queues.pull_now(request)
    assert together is not None
    assert [decode_record(record).body for record in apart.records] == [b"b", b"c", b"d"]
    assert b"".join(together.records) == b"".join(apart.records)
    assert (outgoing.messages, outgoing.size_bytes) == (2 * counted[0], 2 * counted[1]) == (6, 2 * counted[1])


async def test_records_of_queues_that_alternate_in_the_log_are_read_together(bench: Bench) -> None:
    bench.broker.topics.create(TopicConfig("two", read_queues=2, write_queues=2))
    for number in range(6):
        await bench.send(f"{number}", topic="two", queue_id=number % 2)
    result = bench.broker.queues.pull_now(PullRequest("g", "two", 1, 0))
    assert result is not None
    assert (len(result.records), result.message_count, result.next_offset) == (1, 3, 3)
    assert [decode_record(record).body for record in iterate_records(result.records[0])] == [b"1", b"3", b"5"]


async def test_a_pull_that_has_to_wait_is_left_to_wait(bench: Bench) -> None:
    await bench.send("a")
    assert bench.broker.queues.pull_now(PullRequest("g", "t", 0, 1, wait_ms=10)) is None
    at_once = bench.broker.queues.pull_now(PullRequest("g", "t", 0, 1))
    assert at_once == await bench.broker.queues.pull(PullRequest("g", "t", 0, 1))
    found = bench.broker.queues.pull_now(PullRequest("g", "t", 0, 0, wait_ms=10))
    assert found == await bench.broker.queues.pull(PullRequest("g", "t", 0, 0, wait_ms=10))


async def test_damage_among_records_hides_the_damaged_one_alone(bench: Bench, damage: Callable[[int], None]) -> None:
    await bench.send("a", "b", "c")
    damage(2)
    result = bench.broker.queues.pull_now(PullRequest("g", "t", 0, 0))
    assert result is not None
    assert (len(result.records), result.next_offset) == (2, 3)
